//! Parts of a device, and green contexts, which run on them.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::{c_char, c_int, c_uint};

/// `CUdevResource`: the type, the driver's own, and of multiprocessors how many, the least group and its alignment.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Resource {
    kind: c_int,
    hidden: [c_uint; 23],
    count: c_uint,
    minimum: c_uint,
    alignment: c_uint,
    rest: [c_uint; 9],
}

const EMPTY: Resource = Resource { kind: 7, hidden: [0; 23], count: 0, minimum: 0, alignment: 0, rest: [0; 9] };

fn whole(device: c_int) -> Done<Resource> {
    let mut resource = EMPTY;
    call!(cuDeviceGetDevResource(device => c_int, &mut resource => *mut Resource, 1 => c_int)).map(|()| resource)
}

/// Up to `wanted` groups, and the rest.
fn split(input: &Resource, wanted: c_uint, least: c_uint, flags: c_uint) -> Done<(Vec<Resource>, Resource)> {
    let (mut groups, mut rest, mut count) = (vec![EMPTY; wanted as usize], EMPTY, wanted);
    call!(cuDevSmResourceSplitByCount(
        groups.as_mut_ptr() => *mut Resource, &mut count => *mut c_uint, input => *const Resource,
        &mut rest => *mut Resource, flags => c_uint, least => c_uint,
    ))?;
    groups.truncate(count as usize);
    Ok((groups, rest))
}

fn room(input: &Resource, least: c_uint) -> Done<c_uint> {
    let mut count = 99;
    call!(cuDevSmResourceSplitByCount(
        0 => usize, &mut count => *mut c_uint, input => *const Resource, 0 => usize, 0 => c_uint, least => c_uint,
    ))
    .map(|()| count)
}

fn describe(resources: &[Resource]) -> Done<u64> {
    make!(cuDevResourceGenerateDesc -> u64;
        resources.as_ptr() => *const Resource, resources.len() as c_uint => c_uint)
}

fn create(descriptor: u64, device: c_int, flags: c_uint) -> Done<u64> {
    make!(cuGreenCtxCreate -> u64; descriptor => u64, device => c_int, flags => c_uint)
}

/// A green context of so many multiprocessors of device 0.
fn green(least: c_uint) -> u64 {
    let (groups, _) = whole(0).and_then(|whole| split(&whole, 1, least, 0)).expect("a device");
    describe(&groups).and_then(|descriptor| create(descriptor, 0, 1)).expect("a part of the device")
}

fn destroy(green: u64) -> Done {
    call!(cuGreenCtxDestroy(green => u64))
}

fn context_of(green: u64) -> Done<u64> {
    make!(cuCtxFromGreenCtx -> u64; green => u64)
}

fn stream_in(green: u64) -> Done<u64> {
    make!(cuGreenCtxStreamCreate -> u64; green => u64, 1 => c_uint, 0 => c_int)
}

fn top() -> u64 {
    make!(cuCtxGetCurrent -> u64;).expect("a driver")
}

#[test]
fn a_device_is_split_into_groups_of_one_size() {
    for (capability, minimum, alignment) in [(7, 2, 2), (8, 4, 2), (9, 8, 8)] {
        let _machine = Machine::new(&format!(r#"{{"capability": [{capability}, 0]}}"#));
        let whole = whole(0).expect("a device");
        assert_eq!((whole.kind, whole.count, whole.minimum, whole.alignment), (1, 16, minimum, alignment));
        assert_eq!(room(&whole, 0), Ok(16 / minimum));
        let (groups, rest) = split(&whole, 16, 1, 0).expect("a split");
        assert!(groups.len() == 16 / minimum as usize && groups.iter().all(|group| group.count == minimum));
        assert_eq!(rest.kind, 0, "nothing is left");
        assert_eq!(split(&whole, 16, 1, 1).expect("groups of any place").0.len(), 8);
    }
    let _machine = Machine::discrete();
    let whole = whole(0).expect("a device");
    let (groups, rest) = split(&whole, 2, 5, 0).expect("a split");
    assert_eq!((groups[0].count, groups.len(), rest.kind, rest.count), (6, 2, 1, 4));
    assert_eq!(split(&whole, 1, 5, 0).expect("one group").1.count, 10);
    assert_eq!(room(&whole, 16), Ok(1));
}

#[test]
fn splits_and_descriptors_follow_the_rules() {
    let _machine = Machine::new(r#"{"profile": "two-strangers"}"#);
    let (all, other) = (whole(0).expect("a device"), whole(1).expect("a device"));
    assert_eq!(whole(2), Err(INVALID_DEVICE));
    let of_kind = |kind: c_int| {
        let mut resource = EMPTY;
        call!(cuDeviceGetDevResource(0 => c_int, &mut resource => *mut Resource, kind => c_int))
    };
    assert_eq!((of_kind(0), of_kind(1000)), (Err(INVALID_RESOURCE_TYPE), Err(INVALID_RESOURCE_TYPE)));
    assert_eq!((split(&all, 1, 17, 0), split(&all, 1, 4, 4)), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
    assert_eq!((split(&all, 0, 4, 0), split(&EMPTY, 1, 4, 0)), (Err(INVALID_VALUE), Err(INVALID_RESOURCE_TYPE)));
    assert_eq!(split(&Resource { kind: 1, ..EMPTY }, 1, 0, 0), Err(INVALID_VALUE), "made by hand");
    let (first, rest) = split(&all, 2, 4, 0).expect("a split");
    let (second, _) = split(&all, 2, 4, 0).expect("a split");
    assert_eq!(room(&first[0], 2), Err(INVALID_RESOURCE_CONFIGURATION), "what a split gave");
    for together in [[first[0], second[1]], [first[0], first[0]], [all, other]] {
        assert_eq!(describe(&together), Err(INVALID_RESOURCE_CONFIGURATION), "{together:?}");
    }
    assert_eq!((describe(&[]), describe(&[EMPTY])), (Err(INVALID_VALUE), Err(INVALID_RESOURCE_TYPE)));
    let both = describe(&[first[0], rest]).expect("of one split");
    assert_eq!((create(both, 1, 1), create(both, 2, 1)), (Err(INVALID_VALUE), Err(INVALID_DEVICE)));
    assert_eq!((create(both, 0, 2), create(0, 0, 1)), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
    let made = create(both, 0, 0).expect("a part of the device");
    let mut part = EMPTY;
    call!(cuGreenCtxGetDevResource(made => u64, &mut part => *mut Resource, 1 => c_int)).expect("live");
    assert_eq!((part.count, room(&part, 4)), (12, Ok(3)), "now it can be split");
    let mut thread = EMPTY;
    let mut of_context = |context: u64| {
        call!(cuCtxGetDevResource(context => u64, &mut thread => *mut Resource, 1 => c_int)).map(|()| thread.count)
    };
    assert_eq!((of_context(0), context_of(made).and_then(&mut of_context)), (Ok(16), Ok(12)));
    destroy(made).expect("live");
}

#[test]
fn a_green_context_allocates_and_orders_work() {
    let machine = Machine::discrete();
    let (primary, ours, more) = (top(), alloc(64).expect("memory"), alloc(64).expect("memory"));
    let turn = event().expect("an event");
    let part = green(4);
    let context = context_of(part).expect("live");
    assert_eq!((context_of(part), top()), (Ok(context), primary), "it becomes no thread's");
    current(context).expect("a context");
    let (block, busy) = (alloc(64).expect("memory"), stream_in(part).expect("a stream"));
    let owner = make!(cuPointerGetAttribute -> u64; 1 => c_int, block => u64);
    assert_eq!(owner, Ok(primary), "it has the primary context's memory");
    machine.hold();
    set(block, 7, 64, busy).and(record(turn, busy)).and(stream_wait(0, turn)).expect("events of the primary context");
    copy(ours, block, 64, 0).expect("on the default stream");
    assert_eq!((stream_query(busy), stream_query(0)), (Err(NOT_READY), Err(NOT_READY)));
    current(primary).expect("a context");
    assert_eq!(stream_query(0), Ok(()), "each has a default stream");
    set(more, 8, 64, busy).expect("a stream of the same device");
    machine.release();
    sync().expect("the primary context waits for its green ones");
    assert_eq!(stream_query(busy), Ok(()));
    assert_eq!((download(ours, 1), download(more, 1)), (Ok(vec![7]), Ok(vec![8])));
    set(block, 9, 64, 0).and(run("fill_u32", 0, &[block, 1, 1])).and(sync()).expect("the same address space");
    free(block).and(free(ours)).and(free(more)).and(event_destroy(turn)).and(stream_destroy(busy)).expect("all live");
    destroy(part).expect("live");
}

#[test]
fn streams_say_which_green_context_they_have() {
    let machine = Machine::discrete();
    let (primary, part) = (top(), green(4));
    let context = context_of(part).expect("live");
    let (plain, theirs) = (stream(1).expect("a stream"), stream_in(part).expect("a stream"));
    let green_of = |stream: u64| {
        let mut green = 1_u64;
        call!(cuStreamGetGreenCtx(stream => u64, &mut green => *mut u64)).map(|()| green)
    };
    let both = |stream: u64| {
        let (mut context, mut green) = (1_u64, 1_u64);
        call!(cuStreamGetCtx_v2(stream => u64, &mut context => *mut u64, &mut green => *mut u64))
            .map(|()| (context, green))
    };
    let context_of_stream = |stream: u64| {
        let mut context = 0_u64;
        call!(cuStreamGetCtx(stream => u64, &mut context => *mut u64)).map(|()| context)
    };
    assert_eq!((green_of(plain), green_of(theirs), green_of(0)), (Ok(0), Ok(part), Ok(0)));
    assert_eq!((both(plain), both(theirs)), (Ok((primary, 0)), Ok((0, part))));
    assert_eq!(context_of_stream(theirs), Ok(context));
    current(context).expect("live");
    let also = stream(1).expect("a stream");
    assert_eq!((green_of(0), green_of(also)), (Ok(part), Ok(part)), "of the thread's context");
    let flags = |flags: c_uint| make!(cuGreenCtxStreamCreate -> u64; part => u64, flags => c_uint, 0 => c_int);
    assert_eq!((flags(0), flags(2), stream_in(0)), (Err(INVALID_VALUE), Err(INVALID_VALUE), Err(INVALID_CONTEXT)));
    machine.caught("bad-handle");
    current(primary).expect("a context");
    [plain, theirs, also].iter().for_each(|stream| stream_destroy(*stream).expect("live"));
    destroy(part).expect("live");
}

#[test]
fn streams_of_a_green_context_that_ended_can_only_be_destroyed() {
    let machine = Machine::discrete();
    let (primary, part) = (top(), green(4));
    let context = context_of(part).expect("live");
    let (busy, block) = (stream_in(part).expect("a stream"), alloc(64).expect("memory"));
    assert!(machine.leaks().iter().any(|line| line.starts_with("green context")), "{:?}", machine.leaks());
    let turn = event().expect("an event");
    run("spin", busy, &[20_000_000]).and(set(block, 5, 64, busy)).and(record(turn, busy)).expect("under way");
    destroy(part).and(event_sync(turn)).expect("the event is the primary context's");
    assert_eq!(download(block, 1), Ok(vec![5]), "work that was queued is done");
    assert_eq!((set(block, 1, 64, busy), stream_sync(busy)), (Err(STREAM_DETACHED), Err(STREAM_DETACHED)));
    assert!(machine.leaks().iter().any(|line| line.starts_with("stream")), "{:?}", machine.leaks());
    stream_destroy(busy).and(free(block)).and(event_destroy(turn)).expect("all live");
    assert_eq!((destroy(part), context_of(part)), (Err(INVALID_CONTEXT), Err(INVALID_CONTEXT)));
    assert_eq!(current(context), Err(CONTEXT_IS_DESTROYED));
    machine.caught("bad-handle");
    current(primary).expect("it lives");
}

#[test]
fn a_green_context_holds_the_primary_one() {
    let machine = Machine::discrete();
    let (before, _) = info().expect("a context");
    let part = green(4);
    let context = context_of(part).expect("live");
    assert_eq!(info().expect("a context").0, before, "it takes no memory of its own");
    current(context).and(leave(0)).expect("retained");
    free(alloc(64).expect("memory")).expect("a block");
    assert_eq!(call!(cuCtxDestroy_v2(context => u64)), Err(INVALID_CONTEXT), "the green one is destroyed");
    destroy(part).expect("live");
    assert_eq!(alloc(64), Err(CONTEXT_IS_DESTROYED));
    let again = enter(0).expect("a new context");
    let part = green(4);
    let lost = context_of(part).and_then(current).and(run("fault", 0, &[])).and(sync());
    assert_eq!(lost, Err(ILLEGAL_ADDRESS));
    assert_eq!(current(again).and(alloc(8)), Err(ILLEGAL_ADDRESS), "they are lost together");
    call!(cuDevicePrimaryCtxReset_v2(0 => c_int)).and(enter(0).map(drop)).expect("a new context");
    assert_eq!(context_of(part), Err(INVALID_CONTEXT), "it ended with the primary context");
    machine.caught("bad-handle");
}

#[test]
fn what_a_green_context_makes_is_the_primary_one_s() {
    let machine = Machine::new(r#"{"profile": "two-peers"}"#);
    let (primary, part) = (top(), green(4));
    let other = enter(1).expect("a context");
    let there = alloc(64).expect("memory");
    let text = c".version 7.0 .target sm_50 .address_size 64 .global .u32 num = 3;";
    let library = make!(cuLibraryLoadData -> u64; text.as_ptr() => *const c_char, 0 => usize, 0 => usize, 0 => c_uint,
        0 => usize, 0 => usize, 0 => c_uint)
    .expect("a text");
    let of_library = || make!(cuLibraryGetModule -> u64; library => u64);
    current(primary).expect("a context");
    let first = of_library();
    context_of(part).and_then(current).expect("live");
    assert_eq!(of_library(), first, "a module of the primary context");
    let module = make!(cuModuleLoadData -> u64; text.as_ptr() => *const c_char).expect("a text");
    let mut link = 0_u64;
    call!(cuLinkCreate_v2(0 => c_uint, 0 => usize, 0 => usize, &mut link => *mut u64)).expect("a link");
    let host = vec![0_u8; 8192].leak().as_ptr() as u64;
    call!(cuMemHostRegister_v2(host => u64, 4096 => usize, 0 => c_uint)).expect("memory");
    let turn = event().expect("an event");
    call!(cuCtxEnablePeerAccess(other => u64, 0 => c_uint)).expect("peers");
    current(primary).and(destroy(part)).and(record(turn, 0)).expect("an event of the primary context");
    set(there, 1, 64, 0).and(sync()).expect("a peer of the primary context");
    let mut pointer = 0_u64;
    let name = c"num".as_ptr();
    call!(cuModuleGetGlobal_v2(&mut pointer => *mut u64, 0 => usize, module => u64, name => *const c_char))
        .expect("a module of the primary context");
    assert_eq!(download(pointer, 4), Ok(3_u32.to_ne_bytes().to_vec()));
    for what in ["module", "link", "cuMemHostRegister"] {
        assert!(machine.leaks().iter().any(|line| line.contains(what)), "{what}: {:?}", machine.leaks());
    }
    call!(cuLinkDestroy(link => u64)).and(call!(cuMemHostUnregister(host => u64))).expect("both live");
    unload(module).and(event_destroy(turn)).and(call!(cuLibraryUnload(library => u64))).expect("all live");
    call!(cuCtxDisablePeerAccess(other => u64)).expect("enabled");
    free(there).and(leave(1)).expect("all live");
}
