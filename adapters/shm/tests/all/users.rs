//! Users: who may open what, and names that another user took. A second user needs root: 65534.

use crate::children::{play, play_as_nobody};
use crate::common::{by, name, path, refused, uid};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use terrace_shm::{SharedBuffer, ShmError, Way};

/// Whether another user can be played.
fn has_users(test: &str) -> bool {
    let root = uid() == 0;
    if !root {
        println!("SKIP {test}: run as root, which can start a process as user 65534");
    }
    root
}

#[test]
fn another_user_is_refused_unless_the_creator_allows_it() {
    if !has_users("another_user_is_refused_unless_the_creator_allows_it") {
        return;
    }
    let name = name("refused");
    let closed = SharedBuffer::create(&name, 4096).unwrap();
    let told = play_as_nobody("tell-root's", Way::Memfd, &name).says().unwrap();
    assert!(told.starts_with("Refused") && told.contains("uid: 65534"), "{told}");
    drop(closed);
    let open = SharedBuffer::options().allow_user(65534).create(&name, 4096).unwrap();
    open.write::<u8>(..).unwrap().fill(8);
    assert_eq!(play_as_nobody("tell-root's", Way::Memfd, &name).says().unwrap(), "opened 4096 8");
    // Its own names are others.
    let told = play_as_nobody("tell", Way::Memfd, &name).says().unwrap();
    assert!(told.starts_with("NotFound"), "{told}");
}

#[test]
fn the_holder_s_user_is_checked_too() {
    if !has_users("the_holder_s_user_is_checked_too") {
        return;
    }
    let name = name("owner");
    let _theirs = play_as_nobody("create-for-root", Way::Memfd, &name).ready();
    assert!(matches!(refused(SharedBuffer::open(&name)), ShmError::NotFound { uid: 0, .. }), "not one of ours");
    let opened = SharedBuffer::options().owner(65534).open(&name).unwrap();
    assert_eq!((opened.owner(), opened.bytes()), (65534, 4096));
    drop(opened);
    // What is created here is this user's, also beside another's of the same name.
    let own = SharedBuffer::options().owner(65534).open_or_create(&name, 8).unwrap();
    assert_eq!((own.owner(), own.bytes()), (0, 8));
    drop(SharedBuffer::options().owner(65534).open_or_create(&name, 8).unwrap());
    let closed = crate::common::name("closed");
    let _closed = play_as_nobody("create", Way::Memfd, &closed).ready();
    let error = refused(SharedBuffer::options().owner(65534).open(&closed));
    assert!(matches!(error, ShmError::Refused { uid: 0, .. }), "not even root: {error}");
}

#[test]
fn a_name_that_another_user_squats_is_told() {
    if !has_users("a_name_that_another_user_squats_is_told") {
        return;
    }
    let name = name("squat");
    let script = format!(
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.bind('\\0terrace-shm/0/{name}'); s.listen(); \
         print('ready',flush=True); sys.stdin.read()"
    );
    let mut squatter = Command::new("python3");
    std::os::unix::process::CommandExt::uid(&mut squatter, 65534);
    squatter.args(["-c", &script]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let Ok(mut squatter) = squatter.spawn() else {
        println!("SKIP a_name_that_another_user_squats_is_told: apt-get install python3");
        return;
    };
    let mut ready = [0; 6];
    std::io::Read::read_exact(squatter.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let pid = squatter.id();
    for error in [refused(SharedBuffer::open(&name)), refused(SharedBuffer::create(&name, 1))] {
        assert!(matches!(error, ShmError::Squatted { uid: 65534, pid: of, .. } if of == pid), "{error}");
        assert!(error.to_string().contains("user 65534 holds this name"));
    }
    // Allowed, it is asked, and stays silent.
    let allowed = SharedBuffer::options().way(Way::Memfd).allow_user(65534);
    let error = refused(allowed.patience(std::time::Duration::from_millis(50)).open(&name));
    assert!(matches!(error, ShmError::Silent { .. }), "{error}");
    squatter.kill().unwrap();
    squatter.wait().unwrap();
}

#[test]
fn a_file_that_another_user_squats_is_told_and_stays() {
    if !has_users("a_file_that_another_user_squats_is_told_and_stays") {
        return;
    }
    let name = name("squat-file");
    let path = path(&name);
    std::fs::write(&path, [0; 8192]).unwrap();
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    let files = by(Way::File);
    for error in [refused(files.open(&name)), refused(files.create(&name, 1)), refused(SharedBuffer::open(&name))] {
        assert!(matches!(error, ShmError::Squatted { uid: 65534, .. }), "{error}");
    }
    assert!(path.exists());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn files_are_for_one_user() {
    let name = name("mode");
    let error = refused(by(Way::File).allow_user(1).create(&name, 1));
    assert!(matches!(error, ShmError::Users { users: 1, most: 0, .. }), "{error}");
    let many = (0..9).fold(by(Way::Memfd), |options, user| options.allow_user(user));
    assert!(matches!(refused(many.create(&name, 1)), ShmError::Users { users: 9, most: 8, .. }));
    let _file = by(Way::File).create(&name, 1).unwrap();
    let about = std::fs::metadata(path(&name)).unwrap();
    assert_eq!((about.mode() & 0o777, about.uid()), (0o600, uid()));
    assert!(Path::new(&path(&name)).exists());
    std::fs::set_permissions(path(&name), std::fs::Permissions::from_mode(0o660)).unwrap();
    assert!(matches!(refused(SharedBuffer::open(&name)), ShmError::Foreign { .. }));
    if has_users("files_are_for_one_user") {
        std::fs::set_permissions(path(&name), std::fs::Permissions::from_mode(0o600)).unwrap();
        let told = play_as_nobody("tell-root's", Way::File, &name).says().unwrap();
        assert!(told.starts_with("System") && told.contains("PermissionDenied"), "{told}");
    }
    drop(play("tell", Way::File, &name));
}
