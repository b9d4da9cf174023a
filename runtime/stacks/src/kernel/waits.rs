//! Classifies what a blocked thread waits for, by the system call that it is in and by the kernel
//! function that it sleeps in.
//!
//! | sign                                                                                        | means            |
//! |---------------------------------------------------------------------------------------------|------------------|
//! | `nanosleep`, `clock_nanosleep`; `poll`, `select` without descriptors                          | sleep            |
//! | `futex`, `flock`, `fcntl` that waits, semaphores; waiting for a child, a signal, a `vfork`     | lock             |
//! | `read`, `write`, `accept`, `connect`, `recv`, `send`, `poll`, `epoll_wait`, `open`, `fsync`, … | I/O              |
//! | `mmap`, `munmap`, `mprotect`, `brk`, `madvise`, `mlock`, …                                    | see the function |
//!
//! The system call takes precedence. It is what the program requested, and its number never changes
//! its meaning. A read that waits for a lock inside the file system is still a read that blocks.
//! The function decides where the call is inconclusive or cannot be read. Kernels rename their
//! functions (`pipe_read` became `anon_pipe_read`). Functions are therefore recognized by parts of
//! their names, and an unknown function has no meaning.
//!
//! Waiting for a child process or a signal counts as a lock, not as I/O: both end when another
//! thread or process has done something. A lock with a timeout, a condition variable and joining a
//! thread count as locks too, since all are `futex` calls. Message queues are I/O, like pipes.
//!
//! Sources: `syscalls(2)`; names of functions from Linux 4.19 to 6.18.

use crate::kernel::thread::Inside;

/// The event that a thread waits for, as far as one sign reveals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A time to elapse.
    Sleep,
    /// Another thread or process.
    Lock,
    /// Data, a connection, space in a buffer, or a file name.
    Io,
    /// Its memory: a lock on the address space, or a page.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux's system calls are known"))]
    Memory,
    /// A page of a file: for a read, or because it was touched.
    Page,
    /// The handler of `userfaultfd`, which must supply a page that was touched.
    Fault,
    /// Nothing: the thread is stopped.
    Stopped,
}

impl Wait {
    /// Returns what this system call waits for, if it always waits for one known thing.
    pub(crate) fn of_call(inside: Inside) -> Option<Self> {
        match inside {
            Inside::Syscall { number, arguments } => calls::wait(number, arguments),
            Inside::Exception => None,
        }
    }

    /// Returns what this kernel function waits for, if it is known.
    pub(crate) fn of_channel(function: &str) -> Option<Self> {
        let is_known = |parts: &str| parts.split_ascii_whitespace().any(|part| function.contains(part));
        CHANNELS.iter().find(|(_, parts)| is_known(parts)).map(|(wait, _)| *wait)
    }
}

/// Parts of the names of kernel functions. The most specific ones come first.
const CHANNELS: [(Wait, &str); 6] = [
    (Wait::Stopped, "do_signal_stop ptrace_stop do_freezer_trap __refrigerator"),
    (Wait::Fault, "handle_userfault"),
    (Wait::Sleep, "nanosleep common_nsleep"),
    (
        Wait::Lock,
        "futex rwsem mutex flock posix_lock fcntl_setlk locks_lock lock_vma semtimedop do_wait wait4 vfork kernel_clone sigsuspend \
         sigtimedwait do_pause",
    ),
    (Wait::Page, "folio_wait folio_lock wait_on_page lock_page migration_entry_wait swap io_schedule"),
    (
        Wait::Io,
        "pipe_ fifo_open wait_for_partner unix_stream unix_dgram unix_wait skb_wait sk_wait sk_stream_wait wait_woken tcp_ udp_ inet_ \
         vsock ep_poll epoll_wait do_poll do_sys_poll poll_schedule do_select core_sys_select cqring_wait read_events tty_ eventfd \
         timerfd signalfd inotify request_wait_answer fuse_ nfs rpc_ jbd2 ext4_ xfs_ btrfs_ blk_ bio_ wait_on_buffer msgrcv msgsnd \
         wq_sleep",
    ),
];

/// Numbers of system calls.
#[cfg(target_os = "linux")]
mod calls {
    use std::ffi::c_long;

    use super::Wait;

    macro_rules! calls {
        ($($call:ident)*) => { &[$(libc::$call),*] };
    }

    const SLEEPS: &[c_long] = calls! { SYS_nanosleep SYS_clock_nanosleep };

    const LOCKS: &[c_long] = calls! {
        SYS_futex SYS_flock SYS_wait4 SYS_waitid SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_clone SYS_clone3 SYS_membarrier
    };

    /// `futex_waitv` and `futex_wait`, which some C libraries are too old to define. Numbers this
    /// high are the same on all architectures.
    const NEW_LOCKS: &[c_long] = &[449, 455];

    const MEMORY: &[c_long] = calls! {
        SYS_mmap SYS_munmap SYS_mprotect SYS_mremap SYS_madvise SYS_brk SYS_mlock SYS_mlock2 SYS_munlock SYS_mlockall SYS_mincore
    };

    const IO: &[c_long] = calls! {
        SYS_read SYS_readv SYS_pread64 SYS_preadv SYS_preadv2 SYS_write SYS_writev SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_sendfile
        SYS_splice SYS_tee SYS_vmsplice SYS_copy_file_range SYS_accept SYS_accept4 SYS_connect SYS_recvfrom SYS_recvmsg SYS_recvmmsg
        SYS_sendto SYS_sendmsg SYS_sendmmsg SYS_shutdown SYS_epoll_pwait SYS_epoll_pwait2 SYS_io_uring_enter SYS_io_getevents SYS_ioctl
        SYS_openat SYS_openat2 SYS_close SYS_fsync SYS_fdatasync SYS_sync SYS_syncfs SYS_sync_file_range SYS_msync SYS_fallocate
        SYS_ftruncate SYS_truncate SYS_getdents64 SYS_statx SYS_unlinkat SYS_mkdirat SYS_renameat2 SYS_getrandom SYS_mq_timedreceive
        SYS_mq_timedsend
    };

    /// Calls that only the older system call tables contain. On other architectures the C library
    /// does without them.
    #[cfg(target_arch = "x86_64")]
    mod old {
        use super::c_long;

        pub(super) const POLLS: &[c_long] = calls! { SYS_poll };
        pub(super) const SELECTS: &[c_long] = calls! { SYS_select };
        pub(super) const LOCKS: &[c_long] = calls! { SYS_pause SYS_vfork SYS_fork SYS_semop SYS_semtimedop };
        pub(super) const IO: &[c_long] = calls! {
            SYS_epoll_wait SYS_open SYS_creat SYS_stat SYS_lstat SYS_fstat SYS_newfstatat SYS_access SYS_unlink SYS_rename SYS_renameat
            SYS_mkdir SYS_rmdir SYS_getdents SYS_msgrcv SYS_msgsnd
        };
    }

    #[cfg(not(target_arch = "x86_64"))]
    mod old {
        use super::c_long;

        pub(super) const POLLS: &[c_long] = &[];
        pub(super) const SELECTS: &[c_long] = &[];
        pub(super) const LOCKS: &[c_long] = &[];
        pub(super) const IO: &[c_long] = &[];
    }

    pub(super) fn wait(number: c_long, arguments: [u64; 2]) -> Option<Wait> {
        let is_one_of = |calls: &[&[c_long]]| calls.iter().any(|calls| calls.contains(&number));
        let of_some = |descriptors: u64| if descriptors == 0 { Wait::Sleep } else { Wait::Io };
        let [first, second] = arguments;
        if is_one_of(&[SLEEPS]) {
            Some(Wait::Sleep)
        } else if is_one_of(&[LOCKS, NEW_LOCKS, old::LOCKS]) {
            Some(Wait::Lock)
        } else if is_one_of(&[calls! { SYS_fcntl }]) {
            let waits = [libc::F_SETLKW, libc::F_OFD_SETLKW].iter().any(|&command| second == command as u64);
            Some(if waits { Wait::Lock } else { Wait::Io })
        } else if is_one_of(&[calls! { SYS_ppoll }, old::POLLS]) {
            Some(of_some(second))
        } else if is_one_of(&[calls! { SYS_pselect6 }, old::SELECTS]) {
            Some(of_some(first))
        } else if is_one_of(&[IO, old::IO]) {
            Some(Wait::Io)
        } else if is_one_of(&[MEMORY]) {
            Some(Wait::Memory)
        } else {
            None
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod calls {
    use super::Wait;

    pub(super) fn wait(_number: std::ffi::c_long, _arguments: [u64; 2]) -> Option<Wait> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn call(number: std::ffi::c_long, arguments: [u64; 2]) -> Option<Wait> {
        Wait::of_call(Inside::Syscall { number, arguments })
    }

    #[test]
    fn a_poll_without_descriptors_has_the_cause_sleep() {
        for (number, some, none) in [(libc::SYS_ppoll, [0x7f, 1], [0, 0]), (libc::SYS_pselect6, [4, 0x7f], [0, 0])] {
            assert_eq!(call(number, some), Some(Wait::Io));
            assert_eq!(call(number, none), Some(Wait::Sleep));
        }
    }

    #[test]
    fn only_an_fcntl_that_waits_for_a_lock_counts_as_a_lock() {
        assert_eq!(call(libc::SYS_fcntl, [3, libc::F_SETLKW as u64]), Some(Wait::Lock));
        assert_eq!(call(libc::SYS_fcntl, [3, libc::F_SETLK as u64]), Some(Wait::Io));
    }

    #[test]
    fn ambiguous_system_calls_are_left_to_the_kernel_function() {
        assert_eq!(call(libc::SYS_prctl, [0, 0]), None);
        assert_eq!(call(libc::SYS_mmap, [0, 0]), Some(Wait::Memory));
        assert_eq!(Wait::of_call(Inside::Exception), None);
    }

    #[test]
    fn old_and_new_names_of_kernel_functions_are_recognized() {
        for (function, wait) in [
            ("hrtimer_nanosleep", Wait::Sleep),
            ("do_nanosleep", Wait::Sleep),
            ("futex_wait_queue_me", Wait::Lock),
            ("futex_do_wait", Wait::Lock),
            ("rwsem_down_read_slowpath", Wait::Lock),
            ("flock_lock_inode_wait", Wait::Lock),
            ("posix_lock_inode_wait", Wait::Lock),
            ("do_wait", Wait::Lock),
            ("pipe_wait", Wait::Io),
            ("pipe_read", Wait::Io),
            ("anon_pipe_read", Wait::Io),
            ("unix_stream_read_generic", Wait::Io),
            ("__skb_wait_for_more_packets", Wait::Io),
            ("inet_csk_accept", Wait::Io),
            ("sk_wait_data", Wait::Io),
            ("wait_woken", Wait::Io),
            ("do_epoll_wait", Wait::Io),
            ("poll_schedule_timeout.constprop.0", Wait::Io),
            ("jbd2_log_wait_commit", Wait::Io),
            ("io_schedule", Wait::Page),
            ("wait_on_page_bit_common", Wait::Page),
            ("folio_wait_bit_common", Wait::Page),
            ("handle_userfault", Wait::Fault),
            ("do_signal_stop", Wait::Stopped),
            ("ptrace_stop", Wait::Stopped),
        ] {
            assert_eq!(Wait::of_channel(function), Some(wait), "{function}");
        }
        assert_eq!(Wait::of_channel("usbdev_wait_for_godot"), None);
    }
}
