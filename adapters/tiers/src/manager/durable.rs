//! What survives a power cut: named buffers, found again when a manager is built on the same directory.
//!
//! Promises upward: after [`sync`](Shared::sync) said Ok, a restart finds the bytes that the buffer had when it was
//! called, or later ones that were synced; a buffer that is removed is gone then too.
//!
//! What the store keeps of a buffer, as its object's meta data: version 1 | 0 | tenant 2 | chunk 4 | bytes 8 | name
//! (UTF-8).

use super::body::{Body, Named, Versions};
use super::error::Error;
use super::state::Asker;
use super::{Options, Shared};
use crate::ledger::{Event, Refusal, Rejected, TierKind, Why};
use futures_channel::oneshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::store::{MAX_META_BYTES, MAX_PARTS};
use terrace_file::{Change, Object, Store, StoreError};

/// The version of the meta data.
const VERSION: u8 = 1;

/// Bytes in front of the name.
const HEADER: usize = 16;

/// Bytes of a name, at most.
pub const NAME: usize = MAX_META_BYTES - HEADER;

/// What to commit, the versions of chunks that are durable then, and how often the buffer was written before.
type Saved = (Vec<Change>, Versions, u64);

/// What comes of a wish.
type Outcome = oneshot::Receiver<Result<bool, Error>>;

/// What the store says of a buffer.
struct Meta {
    tenant: u16,
    bytes: u64,
    chunk: u32,
    name: String,
}

impl Meta {
    fn encode(body: &Body, name: &str, tenant: u16) -> Vec<u8> {
        let mut meta = vec![VERSION, 0];
        meta.extend(tenant.to_le_bytes());
        meta.extend((body.chunk as u32).to_le_bytes());
        meta.extend(body.bytes.to_le_bytes());
        meta.extend(name.as_bytes());
        meta
    }

    /// `None` for what another program, or a later version, has put there.
    fn decode(meta: &[u8]) -> Option<Self> {
        let (header, name) = meta.split_first_chunk::<HEADER>()?;
        let tenant = u16::from_le_bytes(*header[2..].first_chunk()?);
        let chunk = u32::from_le_bytes(*header[4..].first_chunk()?);
        let bytes = u64::from_le_bytes(*header[8..].first_chunk()?);
        let name = String::from_utf8(name.to_vec()).ok()?;
        let sound = header[0] == VERSION && chunk > 0 && bytes > 0 && bytes.div_ceil(chunk.into()) <= MAX_PARTS.into();
        sound.then_some(Self { tenant, bytes, chunk, name })
    }

    fn chunks(&self) -> u64 {
        self.bytes.div_ceil(self.chunk.into())
    }

    /// Whether each part is a chunk of it, and as long as that.
    fn fits(&self, object: &Object) -> bool {
        let left = |part: u32| self.bytes.checked_sub(u64::from(part) * u64::from(self.chunk)).filter(|left| *left > 0);
        object
            .parts
            .iter()
            .all(|(part, piece)| left(*part).is_some_and(|left| piece.bytes() as u64 == left.min(self.chunk.into())))
    }
}

/// Bytes of memory that are kept for a chunk, at most: of durable buffers they are no more than a store's cap, however
/// long the buffers are said to be. Chunks have 4 KiB at least, so that buffers of 64 times the cap can be taken in.
const CHUNK_RECORDS: u64 = 64;

/// Objects of buffers that were freed, by name, until the store has removed them. The group that makes their name
/// durable again removes them too: no two durable buffers have one name, and what was removed does not come back under
/// another.
#[derive(Debug, Default)]
pub(super) struct Ghosts(BTreeMap<String, (Tier, BTreeSet<u64>)>);

impl Ghosts {
    fn add(&mut self, name: &str, tier: Tier, object: u64) {
        self.0.entry(name.into()).or_insert((tier, BTreeSet::new())).1.insert(object);
    }

    /// Where they are.
    fn tier(&self, name: &str) -> Option<Tier> {
        self.0.get(name).map(|(tier, _)| *tier)
    }

    fn removals(&self, name: &str) -> impl Iterator<Item = Change> {
        self.0.get(name).into_iter().flat_map(|(_, objects)| objects).map(|object| Change::Remove { object: *object })
    }

    /// The store has removed them.
    fn removed(&mut self, name: &str, objects: &[u64]) {
        if let Some((_, ghosts)) = self.0.get_mut(name) {
            ghosts.retain(|ghost| !objects.contains(ghost));
            if ghosts.is_empty() {
                self.0.remove(name);
            }
        }
    }
}

/// The objects that changes remove.
fn removed(changes: &[Change]) -> Vec<u64> {
    let removed = |change: &Change| match change {
        Change::Remove { object } => Some(*object),
        _ => None,
    };
    changes.iter().filter_map(removed).collect()
}

impl Shared {
    /// The tier that keeps what is durable of a buffer: where something of it, or of its name, is; else the best one of
    /// files.
    ///
    /// # Errors
    /// [`Error::NoTier`].
    fn keeper(&self, named: &Named) -> Result<(Tier, &Store), Error> {
        let kept = named.keeper.get().copied().or_else(|| self.state().ghosts.tier(&named.name));
        let tier = kept.or_else(|| self.tiers().find(|tier| self.store(*tier).is_ok()));
        let tier = *named.keeper.get_or_init(|| tier.unwrap_or_default());
        Ok((tier, self.store(tier)?))
    }

    /// Makes the bytes of a buffer durable.
    pub(super) async fn sync(self: &Arc<Self>, body: &Arc<Body>) -> Result<(), Error> {
        body.is_own()?;
        let named = body.named.as_ref().ok_or(Error::Unnamed)?;
        let (name, object) = (&named.name, &named.object);
        let _keeping = named.keeping.lock().await;
        let (tier, store) = self.keeper(named)?;
        let (changes, versions, written) = loop {
            // Not while it is written in files.
            self.until(body, || Ok((!self.state().busy.contains(&body.id)).then_some(()))).await?;
            if let Some(ready) = self.saved(body, tier, (name, *object))? {
                break ready;
            }
            self.wish(body, Event::Save { id: body.id, to: tier }, tier).await?;
        };
        let ghosts = removed(&changes);
        store.commit(changes).await?;
        let mut state = self.state();
        state.ghosts.removed(name, &ghosts);
        body.copies().durable = Some(Box::new(versions));
        // Written meanwhile: what is durable is older than the copy.
        if state.ledger.view(body.id).is_ok_and(|view| view.version == written) {
            let _ = state.handle(self, Event::Synced { id: body.id, tier });
        }
        self.unlock(state);
        Ok(())
    }

    /// What to commit, if the newest bytes are all in the tier.
    fn saved(&self, body: &Body, tier: Tier, (name, object): (&str, u64)) -> Result<Option<Saved>, Error> {
        let state = self.state();
        let view = state.ledger.view(body.id)?;
        if !view.residence.valid(tier) || state.busy.contains(&body.id) {
            return Ok(None);
        }
        let copies = body.copies();
        let Some(pieces) = copies.pieces(tier) else { return Ok(None) };
        let mut changes = Vec::new();
        if copies.durable.is_none() {
            changes.extend(state.ghosts.removals(name));
            changes.push(Change::Meta { object, meta: Meta::encode(body, name, view.tenant) });
        }
        let durable = |chunk: usize| copies.durable.as_ref().map_or(0, |durable| durable[chunk]);
        for (chunk, piece) in pieces.iter().enumerate() {
            if let Some((piece, version)) = piece
                && durable(chunk) != *version
            {
                changes.push(Change::Piece { object, part: chunk as u32, piece: Arc::clone(piece) });
            }
        }
        Ok(Some((changes, copies.versions.clone(), view.version)))
    }

    /// Says what a user wants of a buffer, and waits until it is so. One after the other; who wants the same waits
    /// together.
    ///
    /// # Errors
    /// [`Error::NoRoom`]; [`Error::Leased`]; why the copy failed.
    pub(super) async fn wish(self: &Arc<Self>, body: &Body, event: Event, tier: Tier) -> Result<(), Error> {
        body.is_own()?;
        loop {
            let Some((outcome, mine)) = self.ask_for(body, event)? else {
                body.calls_over().await;
                continue;
            };
            match outcome.await.map_err(|_| Error::Closed)? {
                // It was another's wish: now it is this one's turn.
                _ if !mine => {}
                Ok(true) => return Ok(()),
                Ok(false) if body.is_freed() => return Err(Error::Freed),
                Ok(false) => return Err(self.state().no_room(tier)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Says a wish, or joins who waits for one: what comes of it, and whether it is this one. `None`: a call is in the
    /// way that will have ended soon.
    fn ask_for(self: &Arc<Self>, body: &Body, event: Event) -> Result<Option<(Outcome, bool)>, Error> {
        let ended = body.ended();
        let mut state = self.state();
        let (outcome, first) = state.wait_for(body.id, event);
        let wished = if first { state.wish(self, body, event) } else { Ok(()) };
        let mine = first || state.waits_for(body.id, event);
        self.unlock(state);
        match wished {
            Err(Error::Leased) if body.was_called(ended) => Ok(None),
            wished => wished.map(|()| Some((outcome, mine))),
        }
    }

    /// Takes in what the stores have, also where it is more than they would be given; chunks of at most so many bytes.
    /// At the beginning, when nothing else is there.
    pub(super) fn adopt(self: &Arc<Self>, most: u64) -> Result<(), Error> {
        for (tier, store) in self.tiers().filter_map(|tier| Some((tier, self.store(tier).ok()?))) {
            let (mut chunks, cap) = (0, store.stats().cap);
            for number in store.objects() {
                let Some(object) = store.object(number) else { continue };
                let unknown = || Error::Store(StoreError::BadOptions("the directory has objects of another program's"));
                // Numbers are given one after the other from 1 on.
                let meta = Meta::decode(&object.meta).filter(|_| number < u64::MAX / 2).ok_or_else(unknown)?;
                if u64::from(meta.chunk) > most {
                    return Err(Error::Chunks { name: meta.name, bytes: meta.chunk });
                }
                if self.state().names.contains_key(&meta.name) {
                    return Err(Error::Twice(meta.name));
                }
                if !meta.fits(&object) {
                    return Err(Error::BadBuffer(meta.name));
                }
                chunks += meta.chunks();
                if chunks > cap / CHUNK_RECORDS {
                    return Err(Error::Store(StoreError::CapTooSmall { needs: chunks * CHUNK_RECORDS, cap }));
                }
                self.adopt_one(tier, number, meta, &object)?;
            }
        }
        Ok(())
    }

    fn adopt_one(self: &Arc<Self>, tier: Tier, number: u64, meta: Meta, object: &Object) -> Result<(), Error> {
        let (told, mut outcome) = oneshot::channel();
        let (chunk, description) =
            (meta.chunk as usize, self.description(meta.bytes, meta.chunk as usize, Some(&meta.name)));
        let asker = Asker { name: Some((meta.name, number)), chunk, description, told };
        let mut state = self.state();
        state.has_description(self, description)?;
        state.next_object = state.next_object.max(number + 1);
        // Tenants may be fewer now.
        let tenant = if state.ledger.tenant_bytes(meta.tenant).is_some() { meta.tenant } else { 0 };
        let ticket = state.ticket(asker);
        state.handle(self, Event::Adopt { ticket, bytes: meta.bytes, tenant, tier })?;
        let body = outcome.try_recv().ok().flatten().ok_or(Error::NoRoom { tier })??;
        let _ = body.named.as_ref().map(|named| named.keeper.set(tier));
        let mut copies = body.copies();
        for (part, piece) in &object.parts {
            let chunk = *part as usize;
            copies.wrote(chunk..chunk + 1);
            copies.put_piece(tier, chunk, piece);
        }
        copies.durable = Some(Box::new(copies.versions.clone()));
        drop(copies);
        state.handle(self, Event::Synced { id: body.id, tier })?;
        self.unlock(state);
        Ok(())
    }

    /// Frees a buffer for good.
    pub(super) async fn remove(self: &Arc<Self>, body: &Body) -> Result<(), Error> {
        let named = body.named.as_ref();
        let _keeping = match named {
            Some(named) => Some(named.keeping.lock().await),
            None => None,
        };
        // Without files nothing is durable.
        let keeper = named.and_then(|named| self.keeper(named).ok());
        loop {
            let (ended, copies, changed) = (body.ended(), body.copies_beside(), body.changed().listen());
            let freed = {
                let mut state = self.state();
                // Being made, or written in files. Looked at first: who tries and is refused tells those who listen, as
                // this does.
                let freed = if state.busy.contains(&body.id) { None } else { Some(state.free(self, body)) };
                if let (Some(Ok(())), Some(named), Some((tier, _))) = (freed, named, keeper) {
                    state.ghosts.add(&named.name, tier, named.object);
                }
                self.unlock(state);
                freed
            };
            match freed {
                None => changed.await,
                Some(Err(Rejected::Leased)) if body.was_called(ended) => body.calls_over().await,
                Some(Err(Rejected::Leased)) if body.was_copied(copies) => body.copy_over().await,
                Some(freed) => break freed?,
            }
        }
        // A copy that was under way ends first: then the name is free.
        self.until(body, || Ok(body.is_freed().then_some(()))).await?;
        let (Some(Named { name, .. }), Some((_, store))) = (named.map(Box::as_ref), keeper) else { return Ok(()) };
        let changes: Vec<Change> = self.state().ghosts.removals(name).collect();
        let ghosts = removed(&changes);
        store.commit(changes).await?;
        self.state().ghosts.removed(name, &ghosts);
        Ok(())
    }

    /// A new buffer. A tier that has less than was thought rests then, or is smaller, and the next one is asked.
    pub(super) async fn allocate(self: &Arc<Self>, bytes: u64, options: Options) -> Result<Arc<Body>, Error> {
        let (mut short, mut others) = (None, self.tiers().filter(|tier| self.kind(*tier) != TierKind::File));
        loop {
            let answered = self.allocate_once(bytes, options.clone()).await;
            match answered {
                Err(Error::Device(_) | Error::Memory(_)) if others.next().is_some() => {}
                Err(error @ Error::NoRoom { .. }) if others.next().is_some() => short = Some(error),
                // Not more than a tier may hold, but more than it has room for in one piece.
                Err(refused @ Error::Refused(Refusal { why: Why::TooLarge | Why::NoRoom, .. })) => {
                    return Err(short.unwrap_or(refused));
                }
                answered => return answered,
            }
        }
    }

    async fn allocate_once(self: &Arc<Self>, bytes: u64, options: Options) -> Result<Arc<Body>, Error> {
        let Options { name, tenant, hint, wait } = options;
        let largest = self.chunk as u64 * u64::from(MAX_PARTS);
        if bytes > largest {
            return Err(Error::Refused(Refusal { why: Why::TooLarge, asked: bytes, largest }));
        }
        let (told, outcome) = oneshot::channel();
        let ticket = {
            let mut state = self.state();
            let description = self.description(bytes, self.chunk, name.as_deref());
            if let Err(error) = state.has_description(self, description) {
                // More than any tier may hold is the better answer.
                return Err(state.ledger.refusal(bytes, tenant).map_or(error, Error::Refused));
            }
            let name = match name {
                Some(name) => Some(state.claim_name(name)?),
                None => None,
            };
            let asker = Asker { name, chunk: self.chunk, description, told };
            let ticket = state.ticket(asker);
            if let Err(rejected) = state.handle(self, Event::Allocate { ticket, bytes, tenant, wait, hint }) {
                state.dismiss(ticket);
                return Err(rejected.into());
            }
            self.unlock(state);
            ticket
        };
        let mut request = Request { shared: self, ticket, outcome, answered: false };
        let outcome = (&mut request.outcome).await;
        request.answered = true;
        outcome.map_err(|_| Error::Closed)?
    }
}

/// A request for a buffer. Dropped without an answer it is taken back.
struct Request<'a> {
    shared: &'a Arc<Shared>,
    ticket: u64,
    outcome: oneshot::Receiver<Result<Arc<Body>, Error>>,
    answered: bool,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut state = self.shared.state();
        // Who answers holds the lock too.
        self.outcome.close();
        // Refused while the buffer is being made, which is freed then, as nobody is told of it; or when it is freed
        // already.
        let _ = match self.outcome.try_recv() {
            Ok(Some(Ok(body))) => state.free(self.shared, &body),
            _ => state.handle(self.shared, Event::Cancel { ticket: self.ticket }),
        };
        self.shared.unlock(state);
    }
}
