//! The service that a sandbox asks for.

use std::ops::ControlFlow::{self, Break, Continue};

use super::{
    decide::{Act, Look, Part, World},
    parts::{self, Standing, standing},
    status::ServiceState,
    view::Service,
};
use crate::write::Guard;

impl World<'_> {
    pub(super) fn keep_service(&self, errors: &mut Vec<String>) -> ControlFlow<Act, ServiceState> {
        if let Some(trouble) = self.trouble.get(&Part::Service) {
            errors.push(trouble.clone());
            return Continue(match (self.service.found(), self.blueprint.service) {
                (Some(_), _) => ServiceState::Untouched,
                (None, Some(true)) => ServiceState::Missing,
                (None, _) => ServiceState::NotRequired,
            });
        }
        match self.blueprint.service {
            Some(true) => self.want_service(errors),
            Some(false) => {
                self.end_service()?;
                Continue(ServiceState::NotRequired)
            }
            None => {
                self.look_for_service()?;
                match self.own_service() {
                    None => Continue(ServiceState::NotRequired),
                    Some(service) => self.repair(service, false),
                }
            }
        }
    }

    fn want_service(&self, errors: &mut Vec<String>) -> ControlFlow<Act, ServiceState> {
        let Some(service) = self.service.found() else {
            let body = parts::service(self.sandbox, self.blueprint);
            return Break(Act::Create(Part::Service, body));
        };
        let is_headless = matches!(&*service.cluster_ip, "" | "None");
        let why = match standing(self.sandbox, &service.meta, "service") {
            Standing::Owned => return self.repair(service, false),
            Standing::Adoptable if is_headless => return self.repair(service, true),
            Standing::Adoptable => format!("service {:?} is not headless", self.sandbox.name()),
            Standing::Barred(why) => why,
        };
        errors.push(why);
        Continue(ServiceState::Missing)
    }

    fn repair(&self, service: &Service, is_adopted: bool) -> ControlFlow<Act, ServiceState> {
        let guard = match is_adopted {
            true => Guard::Unchanged,
            false => Guard::SameObject,
        };
        match parts::service_patch(self.sandbox, self.blueprint, service, is_adopted) {
            Some(patch) => Break(Act::Patch(
                Part::Service,
                service.meta.clone(),
                guard,
                patch,
            )),
            None => Continue(ServiceState::Exists),
        }
    }

    pub(super) fn end_service(&self) -> ControlFlow<Act> {
        self.look_for_service()?;
        match self.own_service() {
            Some(service) => self.delete(Part::Service, &service.meta),
            None => Continue(()),
        }
    }

    fn own_service(&self) -> Option<&Service> {
        let uid = &self.sandbox.meta.uid;
        let service = self.service.found();
        service.filter(|service| service.meta.is_controlled_by(uid))
    }

    /// One that has lost its label is not in the cache; the status remembers it.
    fn look_for_service(&self) -> ControlFlow<Act> {
        match self.service {
            Look::Unknown if self.sandbox.status.service.is_some() => Break(Act::ReadService),
            _ => Continue(()),
        }
    }
}
