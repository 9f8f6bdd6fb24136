//! Operations, as they are begun.

use crate::model::{Fate, Sync};
use crate::session::{Flight, Job, Session};
use futures_channel::oneshot;
use terrace_tests::Random;
use terrace_tests::disk::Window;
use terrace_tiers::manager::BufferOptions;
use terrace_tiers::{Buffer, Error};

/// Random bytes.
fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]));
    bytes
}

impl Session<'_> {
    /// Notes a new operation in the log, and that it is under way.
    fn fly(&mut self, key: u64, note: impl FnOnce() -> String, begin: impl FnOnce(&mut Self) -> Job) {
        self.count(note);
        let window: Window = self.calm.clone();
        let disturbed = self.flights.iter().any(|flight| flight.key == key);
        self.disturb(key);
        let job = begin(self);
        let bytes = self.model.get(&key).map_or(0, |buffer| buffer.bytes as u64);
        self.flights.push(Flight { key, job, window, disturbed, bytes });
    }

    /// Notes an operation that ends at once.
    pub fn count(&mut self, note: impl FnOnce() -> String) {
        self.tally.runs.operations += 1;
        self.world.disk.remark(note);
    }

    fn handle(&self, key: u64) -> Buffer {
        self.handles[&key].clone()
    }

    pub fn allocate(&mut self, bytes: usize, options: BufferOptions) {
        self.next += 1;
        let (key, wait, name) = (self.next, options.wait, options.name.clone());
        let note = format!("allocate {key}: {bytes} bytes, {options:?}");
        let asked = name.clone();
        self.fly(
            key,
            || note,
            |own| {
                let join = own.manager().allocate_async(bytes as u64, options);
                Job::Allocate { join, name, bytes, wait }
            },
        );
        if let Some(name) = asked {
            self.contest(&name);
        }
    }

    /// Of two who ask for the same name together, one finds it taken, whatever comes of the other.
    fn contest(&mut self, name: &str) {
        let is_rival =
            |flight: &Flight| matches!(&flight.job, Job::Allocate { name: Some(asked), .. } if asked == name);
        if self.flights.iter().filter(|flight| is_rival(flight)).count() > 1 {
            self.flights.iter_mut().filter(|flight| is_rival(flight)).for_each(|flight| flight.disturbed = true);
        }
    }

    /// Whether a write of a buffer is under way.
    pub fn is_written(&self, key: u64) -> bool {
        self.model[&key].writing.is_some()
    }

    pub fn write(&mut self, key: u64, offset: usize, count: usize) {
        let from = bytes(&mut self.world.random, count);
        self.fly(
            key,
            || format!("write {key}: {count} bytes from {offset} on"),
            |own| {
                own.model.get_mut(&key).expect("it is live").write(offset, &from);
                Job::Write(own.handle(key).write_async(offset as u64, from))
            },
        );
    }

    pub fn read(&mut self, key: u64, offset: usize, count: usize) {
        self.fly(
            key,
            || format!("read {key}: {count} bytes from {offset} on"),
            |own| {
                let from = own.model[&key].last();
                Job::Read { join: own.handle(key).read_async(offset as u64, count), offset, from }
            },
        );
    }

    /// Takes a lease, which is held until it is released, or the session forgets it.
    pub fn lease(&mut self, key: u64) {
        self.fly(
            key,
            || format!("lease {key}"),
            |own| {
                let (buffer, from) = (own.handle(key), own.model[&key].last());
                let (release, released) = oneshot::channel::<()>();
                let join = own.world.tasks.spawn(async move {
                    let lease = buffer.lease_best_async().await?;
                    let seen = lease.to_vec();
                    let _ = released.await;
                    Ok::<_, Error>((seen, lease.to_vec()))
                });
                Job::Lease { join, release: Some(release), from }
            },
        );
    }

    /// The same, to write: half at once, half when it is released.
    pub fn lease_mut(&mut self, key: u64) {
        let count = self.model[&key].bytes;
        let from = bytes(&mut self.world.random, count);
        self.fly(
            key,
            || format!("lease {key} to write"),
            |own| {
                own.model.get_mut(&key).expect("it is live").write(0, &from);
                let (buffer, (release, released)) = (own.handle(key), oneshot::channel::<()>());
                let join = own.world.tasks.spawn(async move {
                    let mut lease = buffer.lease_mut_async().await?;
                    let half = count / 2;
                    lease[..half].copy_from_slice(&from[..half]);
                    let _ = released.await;
                    lease[half..].copy_from_slice(&from[half..]);
                    Ok::<_, Error>(())
                });
                Job::LeaseMut { join, release: Some(release) }
            },
        );
    }

    pub fn sync(&mut self, key: u64) {
        self.fly(
            key,
            || format!("sync {key}"),
            |own| {
                let buffer = own.model.get_mut(&key).expect("it is live");
                buffer.syncs.push(Sync { begin: buffer.last(), end: None, done: false });
                let attempt = buffer.syncs.len() - 1;
                Job::Sync(own.manager().sync_async(&own.handles[&key]), attempt)
            },
        );
    }

    pub fn promote(&mut self, key: u64) {
        self.fly(key, || format!("promote {key}"), |own| Job::Wish(own.manager().promote_async(&own.handles[&key], 0)));
    }

    pub fn demote(&mut self, key: u64) {
        self.fly(key, || format!("demote {key}"), |own| Job::Wish(own.manager().demote_async(&own.handles[&key], 1)));
    }

    /// Frees a buffer: one with a name is removed.
    pub fn free(&mut self, key: u64) {
        let Some(name) = self.model[&key].name.clone() else {
            self.count(|| format!("free {key}"));
            self.model.remove(&key);
            self.handles.remove(&key);
            return;
        };
        self.fly(
            key,
            || format!("remove {key}"),
            |own| {
                own.model.get_mut(&key).expect("it is live").fate = Fate::Leaving;
                Job::Remove(own.manager().remove_async(&name))
            },
        );
    }
}
