//! Layouts of real machines: what is read, and what follows.

use super::world::{World, figures};
use terrace_tiers::detect::{DecidedBy, DetectedDisk, TierKind, Transport, Unsuitable};

/// The tier, and what decided it.
fn class(disk: &DetectedDisk) -> (Option<TierKind>, DecidedBy) {
    (disk.class.tier, disk.class.by)
}

fn says(disk: &DetectedDisk, words: &str) -> bool {
    disk.class.reasons.iter().any(|reason| reason.contains(words))
}

/// The same disk, measured.
fn measured(mut disk: DetectedDisk, ratio: f64, depth: f64) -> DetectedDisk {
    disk.record(Ok(figures(ratio, depth, 100_000)));
    disk
}

const NVME: &str = "pci0000:00/0000:00:1d.0/0000:05:00.0/nvme/nvme0/nvme0n1";
const ATA: &str = "pci0000:00/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0/block/sda";
const USB: &str = "pci0000:00/0000:00:14.0/usb2/2-3/2-3:1.0/host6/target6:0:0/6:0:0:0/block/sdc";
const VIRTIO: &str = "pci0000:00/0000:00:02.0/virtio1/block/vda";

#[test]
fn an_nvme_server_is_known_by_the_name_of_its_transport() {
    let disk = World::new()
        .disk("259:0", NVME, 0)
        .partition("259:2", &format!("{NVME}/nvme0n1p2"))
        .file(&format!("sys/devices/{NVME}/device/model"), "Fast Disk 990  \n")
        .mount("259:2 / ext4 /dev/nvme0n1p2 rw")
        .mount("0:5 /dev devtmpfs udev rw")
        .mount("0:6 /run tmpfs tmpfs rw")
        .mount("0:7 /proc proc proc rw")
        .only();
    assert_eq!(class(&disk), (Some(TierKind::Nvme), DecidedBy::Transport));
    assert_eq!((disk.device.as_str(), disk.drives[0].name.as_str()), ("nvme0n1", "nvme0n1"), "the partition's disk");
    assert_eq!((disk.drives[0].model.as_deref(), disk.drives[0].sector_bytes), (Some("Fast Disk 990"), Some(512)));
    assert!(disk.free_bytes <= disk.capacity_bytes && disk.capacity_bytes > Some(0));
    // A measurement does not make it another tier, but is told.
    let slow = measured(disk, 0.02, 1.2);
    assert_eq!(class(&slow), (Some(TierKind::Nvme), DecidedBy::Transport));
    assert!(says(&slow, "as slow as on a disk that turns"));
}

#[test]
fn a_jetson_has_emmc_nvme_and_a_card() {
    let emmc = "platform/bus@0/3460000.mmc/mmc_host/mmc0/mmc0:0001/block/mmcblk0";
    let card = "platform/bus@0/3400000.mmc/mmc_host/mmc1/mmc1:aaaa/block/mmcblk1";
    let nvme = "platform/bus@0/14160000.pcie/pci0004:00/0004:00:00.0/nvme/nvme0/nvme0n1";
    let world = World::new()
        .disk("179:0", emmc, 0)
        .partition("179:1", &format!("{emmc}/mmcblk0p1"))
        .file(&format!("sys/devices/{emmc}/device/type"), "MMC\n")
        .disk("179:8", card, 0)
        .file(&format!("sys/devices/{card}/device/type"), "SD\n")
        .disk("259:0", nvme, 0)
        .mount("179:1 / ext4 /dev/mmcblk0p1 rw")
        .mount("179:8 /media/a\\040card exfat /dev/mmcblk1 rw")
        .mount("259:0 /mnt/nvme ext4 /dev/nvme0n1 rw");
    let disks = world.machine(Vec::new()).disks;
    let found: Vec<_> =
        disks.iter().map(|disk| (disk.mount.to_str(), disk.drives[0].transport, disk.class.tier)).collect();
    assert_eq!(
        found,
        [
            (Some("/"), Transport::Emmc, Some(TierKind::Ssd)),
            (Some("/media/a card"), Transport::Card, Some(TierKind::Ssd)),
            (Some("/mnt/nvme"), Transport::Nvme, Some(TierKind::Nvme)),
        ]
    );
    assert!(disks.iter().all(|disk| disk.class.by == DecidedBy::Transport));
}

#[test]
fn a_virtual_disk_that_says_it_turns_is_measured_and_believed_no_more() {
    let disk = World::new().disk("254:0", VIRTIO, 1).mount("254:0 / ext4 /dev/vda rw,discard").only();
    assert_eq!(class(&disk), (Some(TierKind::Ssd), DecidedBy::Guess));
    let disk = measured(disk, 1.02, 7.0);
    assert_eq!(class(&disk), (Some(TierKind::Ssd), DecidedBy::Measurement));
    assert!(
        says(&disk, "1.02 times as fast") && says(&disk, "vda says rotational=1, which is not so"),
        "{:?}",
        disk.class
    );
    // A disk that does rotate, with the same name.
    assert_eq!(class(&measured(disk, 0.03, 1.5)), (Some(TierKind::Hdd), DecidedBy::Measurement));
}

#[test]
fn sata_is_decided_by_what_is_measured() {
    let of = |rotational| {
        World::new()
            .disk("8:0", ATA, rotational)
            .partition("8:1", &format!("{ATA}/sda1"))
            .mount("8:1 /data xfs /dev/sda1 rw")
            .only()
    };
    assert_eq!([of(0), of(1)].map(|disk| disk.drives[0].transport), [Transport::Ata; 2]);
    // Without a measurement it is a guess, and is called one.
    assert_eq!(class(&of(0)), (Some(TierKind::Ssd), DecidedBy::Guess));
    assert_eq!(class(&of(1)), (Some(TierKind::Hdd), DecidedBy::Guess));
    let ssd = measured(of(0), 0.6, 8.0);
    assert_eq!((class(&ssd), says(&ssd, "rotational")), ((Some(TierKind::Ssd), DecidedBy::Measurement), false));
    let hdd = measured(of(1), 0.02, 1.6);
    assert_eq!((class(&hdd), says(&hdd, "rotational")), ((Some(TierKind::Hdd), DecidedBy::Measurement), false));
    // A disk with a wrong `rotational`.
    let lies = measured(of(0), 0.02, 1.6);
    assert_eq!(class(&lies), (Some(TierKind::Hdd), DecidedBy::Measurement));
    assert!(says(&lies, "sda says rotational=0, which is not so"));
}

#[test]
fn a_usb_disk_is_on_usb_also_where_it_speaks_sata() {
    let path = USB.replace("/host6", "/ata9/host6");
    for path in [USB, path.as_str()] {
        let disk = World::new().disk("8:32", path, 1).mount("8:32 /media/usb ext4 /dev/sdc rw").only();
        assert_eq!(disk.drives[0].transport, Transport::Usb);
        assert_eq!(class(&disk), (Some(TierKind::Hdd), DecidedBy::Guess));
        assert_eq!(class(&measured(disk.clone(), 0.03, 1.2)), (Some(TierKind::Hdd), DecidedBy::Measurement));
        assert_eq!(class(&measured(disk, 0.7, 2.0)), (Some(TierKind::Ssd), DecidedBy::Measurement));
    }
}

#[test]
fn stacks_are_what_is_below_them_and_the_slowest_of_it() {
    let second = NVME.replace("nvme0", "nvme1");
    let raid =
        World::new().disk("259:0", NVME, 0).partition("259:1", &format!("{NVME}/nvme0n1p1")).disk("259:3", &second, 0);
    let raid = raid
        .stack("9:0", "virtual/block/md0", &[&format!("{NVME}/nvme0n1p1"), &second])
        .mount("9:0 /data xfs /dev/md0 rw")
        .only();
    assert_eq!((class(&raid), raid.device.as_str()), ((Some(TierKind::Nvme), DecidedBy::Transport), "md0"));
    let names: Vec<&str> = raid.drives.iter().map(|drive| drive.name.as_str()).collect();
    assert_eq!(names, ["nvme0n1", "nvme1n1"]);
    // Encryption and a volume over SATA: two floors.
    let crypt = World::new()
        .disk("8:0", ATA, 0)
        .stack("253:0", "virtual/block/dm-0", &[ATA])
        .file("sys/devices/virtual/block/dm-0/dm/name", "crypt\n")
        .stack("253:1", "virtual/block/dm-1", &["virtual/block/dm-0"])
        .file("sys/devices/virtual/block/dm-1/dm/name", "vg-home\n");
    let by_number = crypt.mount("253:1 /home ext4 /dev/mapper/vg-home rw");
    let disk = by_number.only();
    assert_eq!((disk.device.as_str(), disk.drives[0].name.as_str()), ("dm-1", "sda"));
    assert_eq!(class(&measured(disk, 0.8, 9.0)), (Some(TierKind::Ssd), DecidedBy::Measurement));
    // Several names for one file system: found by the name that it was mounted from, and once.
    let btrfs = by_number.mount("0:44 / btrfs /dev/mapper/crypt rw").mount("0:45 /var btrfs /dev/mapper/crypt rw");
    let disks = btrfs.machine(Vec::new()).disks;
    let devices: Vec<_> = disks.iter().map(|disk| (disk.mount.to_str(), disk.device.as_str())).collect();
    assert_eq!(devices, [(Some("/"), "dm-0"), (Some("/home"), "dm-1")]);
    // Two parts of one disk are one disk; where names decide, the slowest does.
    let emmc = "platform/mmc_host/mmc0/mmc0:0001/block/mmcblk0";
    let (first, second) = (format!("{NVME}/nvme0n1p1"), format!("{NVME}/nvme0n1p2"));
    let parts = World::new().disk("259:0", NVME, 0).partition("259:1", &first).partition("259:2", &second);
    let parts = parts.disk("179:0", emmc, 0).stack("9:0", "virtual/block/md0", &[&first, emmc, &second]);
    let parts = parts.mount("9:0 /data ext4 /dev/md0 rw").only();
    assert_eq!((class(&parts), parts.drives.len()), ((Some(TierKind::Ssd), DecidedBy::Transport), 2));
    // A fast and a slow one are slow: the fast one's name decides nothing.
    let mixed = World::new().disk("259:0", NVME, 0).disk("8:0", ATA, 1);
    let mixed = mixed.stack("9:1", "virtual/block/md1", &[NVME, ATA]).mount("9:1 /data ext4 /dev/md1 rw").only();
    assert_eq!(class(&mixed), (Some(TierKind::Hdd), DecidedBy::Guess));
    assert_eq!(class(&measured(mixed, 0.5, 4.0)), (Some(TierKind::Ssd), DecidedBy::Measurement));
}

#[test]
fn links_in_a_circle_end() {
    let world = World::new().stack("9:0", "virtual/block/md0", &["virtual/block/md1"]);
    let disk = world.stack("9:1", "virtual/block/md1", &["virtual/block/md0"]).mount("9:0 / ext4 /dev/md0 rw").only();
    assert_eq!((disk.drives.len(), disk.class.by), (1, DecidedBy::Guess));
}

#[test]
fn memory_and_other_machines_are_no_tiers() {
    let world = World::new()
        .disk("252:0", "virtual/block/zram0", 0)
        .mount("0:30 /mnt/nas nfs4 nas:/export rw,vers=4.2")
        .mount("0:31 /mnt/ssh fuse.sshfs user@host: rw")
        .mount("252:0 /swapdisk ext4 /dev/zram0 rw")
        .mount("0:32 /tmp tmpfs tmpfs rw,size=4g");
    let mut machine = world.machine(Vec::new());
    let refused: Vec<_> = machine.disks.iter().map(|disk| (disk.mount.to_str(), disk.class.refused)).collect();
    assert_eq!(
        refused,
        [
            (Some("/mnt/nas"), Some(Unsuitable::Network)),
            (Some("/mnt/ssh"), Some(Unsuitable::Network)),
            (Some("/swapdisk"), Some(Unsuitable::Memory)),
        ]
    );
    assert!(machine.disks.iter().all(|disk| disk.class.tier.is_none() && disk.class.by == DecidedBy::Refusal));
    // A server that may not answer is never queried.
    assert_eq!((machine.disks[0].capacity_bytes, machine.disks[0].free_bytes), (None, None));
    // Memory is named where it was asked for, and is what the user says it is.
    let (disk, _) = machine.disk_of("/tmp".as_ref()).expect("it is there");
    assert_eq!((disk.class.refused, disk.file_system.as_str()), (Some(Unsuitable::Memory), "tmpfs"));
    disk.declare(TierKind::Hdd);
    assert_eq!(class(disk), (Some(TierKind::Hdd), DecidedBy::Declared));
    assert!(says(disk, "you said hdd") && says(disk, "lies in memory"));
}

/// The disk of WSL2 is a virtual one, on Hyper-V's bus; drives of Windows come by 9p, or by virtiofs.
#[test]
fn wsl2_has_a_virtual_disk_and_drives_of_windows_are_no_tiers() {
    let disk = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/fd1d2cbd-ce7c-535c-966b-eb5f811c95f0/host0/target0:0:0/0:0:0:2/block/sdc";
    let drive =
        "rw,aname=drvfs;path=C:\\134;uid=1000;gid=1000;symlinkroot=/mnt/,cache=5,access=client,msize=65536,trans=fd";
    let world = World::new()
        .disk("8:32", disk, 1)
        .mount("8:32 / ext4 /dev/sdc rw,discard,errors=remount-ro")
        .mount(&format!("0:70 /mnt/c 9p C:\\134 {drive}"))
        .mount("0:71 /mnt/d virtiofs 7a5c8b86-90f9-4d3c-8a1f-0123456789ab rw")
        .mount("0:72 /mnt/e virtiofs drvfsE2 rw")
        .mount("0:73 /usr/lib/wsl/drivers 9p none ro,aname=drivers;fmask=222")
        .mount("0:74 /mnt/wsl tmpfs none rw")
        // What other hypervisors share by the same file systems stays a tier: a guess until it is measured.
        .mount("0:75 /srv/shared 9p shared rw,aname=/srv,trans=virtio")
        .mount("0:76 /srv/other virtiofs my-36-letters-long-tag-of-no-hex-num rw");
    let mut machine = world.machine(Vec::new());
    let found: Vec<_> = machine
        .disks
        .iter()
        .map(|disk| (disk.mount.to_str().expect("text"), disk.class.tier, disk.class.refused))
        .collect();
    let (no, hdd) = (Some(Unsuitable::Network), Some(TierKind::Hdd));
    assert_eq!(
        found,
        [
            ("/", Some(TierKind::Ssd), None),
            ("/mnt/c", None, no),
            ("/mnt/d", None, no),
            ("/mnt/e", None, no),
            ("/srv/other", hdd, None),
            ("/srv/shared", hdd, None),
            ("/usr/lib/wsl/drivers", None, Some(Unsuitable::ReadOnly)),
        ]
    );
    assert_eq!(machine.disks[0].drives[0].transport, Transport::Virtual);
    assert!(machine.disks[1].device == "C:\\" && says(&machine.disks[1], "a directory on Linux's own disk"));
    // Windows answers how much room there is.
    assert!(machine.disks[1].capacity_bytes > Some(0));
    // A directory there is refused as well, unless the user says what it is.
    let (disk, _) = machine.disk_of("/mnt/c".as_ref()).expect("it is there");
    disk.declare(TierKind::Ssd);
    assert_eq!(class(disk), (Some(TierKind::Ssd), DecidedBy::Declared));
}

#[test]
fn an_overlay_is_what_its_upper_folder_lies_on() {
    let of = |upper: &str| {
        World::new()
            .disk("259:0", NVME, 0)
            .mount("259:0 /var ext4 /dev/nvme0n1 rw")
            .mount("0:50 /live tmpfs tmpfs rw")
            .mount(&format!("0:60 / overlay overlay rw,lowerdir=/l1:/l2,upperdir={upper},workdir=/w"))
    };
    let disk = |upper: &str| of(upper).machine(Vec::new()).disks.into_iter().next().expect("the root");
    assert_eq!(class(&disk("/var/lib/up")), (Some(TierKind::Nvme), DecidedBy::Transport));
    assert_eq!(disk("/live/up").class.refused, Some(Unsuitable::Memory));
    // In a container the upper folder is not to be seen: the overlay itself holds that path.
    let hidden = disk("/srv/up");
    assert_eq!(class(&hidden), (Some(TierKind::Hdd), DecidedBy::Guess));
    assert_eq!(class(&measured(hidden, 0.9, 6.0)), (Some(TierKind::Ssd), DecidedBy::Measurement));
}

#[test]
fn what_cannot_be_written_is_refused_whatever_the_user_says() {
    let world = World::new().disk("8:0", ATA, 0).mount("8:0 /mnt ext4 /dev/sda ro");
    let mut disk = world.only();
    assert_eq!(disk.class.refused, Some(Unsuitable::ReadOnly));
    disk.declare(TierKind::Ssd);
    assert_eq!(disk.class.refused, Some(Unsuitable::ReadOnly));
    // Images are not even listed.
    let images = world.disk("7:0", "virtual/block/loop0", 0).mount("7:0 /snap/core squashfs /dev/loop0 ro");
    assert_eq!(images.only().mount.to_str(), Some("/mnt"));
}

#[test]
fn one_line_for_a_file_system_however_often_it_is_mounted() {
    let world = World::new().disk("8:0", ATA, 0).mount("8:0 /var/lib/bound ext4 /dev/sda rw");
    let world = world.mount("8:0 /data ext4 /dev/sda rw").mount("8:0 /a ext4 /dev/sda ro");
    // The shortest of those that can be written.
    assert_eq!(world.only().mount.to_str(), Some("/data"));
    // What another mount hides is not there.
    let hidden = world.disk("8:32", USB, 1).mount("8:32 /data ext4 /dev/sdc rw").machine(Vec::new()).disks;
    let places: Vec<_> = hidden.iter().map(|disk| (disk.mount.to_str(), disk.device.as_str())).collect();
    assert_eq!(places, [(Some("/data"), "sdc"), (Some("/var/lib/bound"), "sda")]);
}

#[test]
fn a_directory_that_is_not_there_is_an_error_that_names_it() {
    let world = World::new().file("a-file", "").mount("8:0 / ext4 /dev/sda rw");
    let mut machine = world.machine(Vec::new());
    for (path, why) in [("/nowhere", "No such file"), ("/a-file", "not a directory")] {
        let error = machine.disk_of(path.as_ref()).expect_err("it is not there").to_string();
        assert!(error.starts_with(path) && error.contains(why) && error.contains("give a directory"), "{error}");
    }
    let bare = World::new();
    let error = bare.machine(Vec::new()).disk_of("/".as_ref()).expect_err("nothing is mounted there").to_string();
    assert!(error.contains("does not say what is mounted"), "{error}");
}
