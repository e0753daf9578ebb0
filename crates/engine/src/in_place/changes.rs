//! What is to be written to a running pod, and in which order.

use serde_json::{Value, json};

use super::{complete::Intent, resources::Resources};
use crate::json::Object;

/// A list of containers of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    Containers,
    InitContainers,
}

impl List {
    pub(super) const ALL: [Self; 2] = [Self::Containers, Self::InitContainers];

    pub fn name(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::InitContainers => "initContainers",
        }
    }
}

/// Everything that changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Labels and annotations as a merge patch of `metadata`: what was removed is null.
    pub metadata: Option<Value>,
    pub images: Vec<ImageChange>,
    pub resizes: Vec<ResizeChange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageChange {
    pub list: List,
    pub container: String,
    pub image: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ResizeChange {
    /// None for the resources of the whole pod.
    pub container: Option<(List, String)>,
    pub from: Resources,
    pub to: Resources,
    /// The container's policy restarts it for this.
    pub restarts: bool,
}

/// One request, as a strategic merge patch of the pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// To where the platform takes resources; whatever else rides along there is lost.
    Resize(Value),
    /// To the pod. The revision belongs into this one.
    Update(Value),
}

impl Changes {
    /// The names of containers that are replaced by this.
    pub fn restarted(&self) -> impl Iterator<Item = &str> {
        let resized = self.resizes.iter().filter(|resize| resize.restarts);
        let resized = resized.filter_map(|resize| resize.container.as_ref());
        let images = self.images.iter().map(|image| image.container.as_str());
        images.chain(resized.map(|(_, name)| name.as_str()))
    }

    /// The requests in order. Beside a new image, resources grow before it comes and shrink after it, so that neither
    /// container runs in less than it was made for.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let resize_to = |size: fn(&ResizeChange) -> Resources| self.resize_patch(size);
        if self.images.is_empty() {
            steps.extend(resize_to(|it| it.to.clone()).map(Step::Resize));
            steps.extend(self.update_patch().map(Step::Update));
            return steps;
        }
        let grows = self
            .resizes
            .iter()
            .any(|it| it.from.at_least(&it.to) != it.from);
        let shrinks = self
            .resizes
            .iter()
            .any(|it| it.from.at_least(&it.to) != it.to);
        if grows {
            steps.extend(resize_to(|it| it.from.at_least(&it.to)).map(Step::Resize));
        }
        steps.extend(self.update_patch().map(Step::Update));
        if shrinks {
            steps.extend(resize_to(|it| it.to.clone()).map(Step::Resize));
        }
        steps
    }

    /// The request that takes a resize back. One that is only waited for may be applied much later, and the scheduler
    /// reckons with it until then.
    pub fn undo_resize(&self) -> Option<Value> {
        self.resize_patch(|it| it.from.clone())
    }

    /// What to remember before the first step is written.
    pub fn intent(&self, pod: &Value, now: std::time::SystemTime) -> Intent {
        Intent::record(self, pod, now)
    }

    fn resize_patch(&self, size: fn(&ResizeChange) -> Resources) -> Option<Value> {
        let mut spec = Object::new();
        for resize in &self.resizes {
            let resources = size(resize).resizable().to_json();
            match &resize.container {
                None => {
                    spec.insert("resources".to_owned(), resources);
                }
                Some((list, name)) => {
                    push(
                        &mut spec,
                        *list,
                        json!({"name": name, "resources": resources}),
                    );
                }
            }
        }
        (!spec.is_empty()).then(|| json!({"spec": spec}))
    }

    fn update_patch(&self) -> Option<Value> {
        let mut patch = Object::new();
        if let Some(metadata) = &self.metadata {
            patch.insert("metadata".to_owned(), metadata.clone());
        }
        let mut spec = Object::new();
        for change in &self.images {
            let container = json!({"name": change.container, "image": change.image});
            push(&mut spec, change.list, container);
        }
        if !spec.is_empty() {
            patch.insert("spec".to_owned(), spec.into());
        }
        (!patch.is_empty()).then(|| patch.into())
    }
}

fn push(spec: &mut Object, list: List, container: Value) {
    let list = spec.entry(list.name()).or_insert_with(|| json!([]));
    if let Value::Array(list) = list {
        list.push(container);
    }
}
