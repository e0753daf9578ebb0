//! Whether a pool and its template are known as they were when a claim was made.
//!
//! Watches of different kinds run ahead of each other: a claim may be heard of before the edit that was answered before it was
//! made. Whoever reads the two after having seen the claim knows of that edit. Only where nobody may be given what is old is it
//! worth two reads, and one who reads does so for all claims that have been seen by then.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync;

use super::view::Claim;
use crate::{
    meta::Key,
    sigs::{pool::view::Pool, stores::Stores},
    write::{Failure, Writer},
};

/// By pool. Clones are one.
#[derive(Clone, Default)]
pub(super) struct Current(Arc<Mutex<HashMap<Key, Page>>>);

#[derive(Clone, Default)]
struct Page {
    /// Of all edits before a claim of this version it is known.
    as_of: u64,
    turn: Arc<sync::Mutex<()>>,
}

impl Current {
    /// Whether an edit before the claim may be unknown.
    pub(super) fn is_behind(&self, claim: &Claim) -> bool {
        let page = self.pages().get(&claim.pool()).cloned();
        page.unwrap_or_default().as_of < claim.meta.version
    }

    /// Reads the pool of the claim and its template past the cache, unless somebody has just done so.
    pub(super) async fn catch_up(
        &self,
        claim: &Claim,
        writer: &Writer,
        stores: &Stores,
    ) -> Result<(), Failure> {
        let key = claim.pool();
        let turn = Arc::clone(&self.pages().entry(key.clone()).or_default().turn);
        let _turn = turn.lock().await;
        if !self.is_behind(claim) {
            return Ok(());
        }
        let as_of = stores.claims.watched().max(claim.meta.version);
        let known = stores.pools.get(&key);
        let seen = known.as_ref().map(|pool| &pool.meta);
        let template = known.as_deref().map(Pool::template);
        // mostly it is the same template, and need not be waited for
        let (pool, _) = futures::try_join!(
            writer.refresh(&stores.pools, &key, seen),
            read_template(writer, stores, template.as_ref())
        )?;
        // pools come and go
        self.pages()
            .retain(|key, _| stores.pools.get(key).is_some());
        let Some(pool) = pool else {
            return Ok(());
        };
        let named = Some(pool.template()).filter(|named| Some(named) != template.as_ref());
        read_template(writer, stores, named.as_ref()).await?;
        self.pages().entry(key).or_default().as_of = as_of;
        Ok(())
    }

    fn pages(&self) -> MutexGuard<'_, HashMap<Key, Page>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read_template(writer: &Writer, stores: &Stores, key: Option<&Key>) -> Result<(), Failure> {
    let Some(key) = key else {
        return Ok(());
    };
    let known = stores.templates.get(key);
    let seen = known.as_ref().map(|template| &template.meta);
    let read = writer.refresh(&stores.templates, key, seen).await;
    read.map(drop)
}
