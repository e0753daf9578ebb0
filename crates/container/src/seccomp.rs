//! The system calls that a container may make, unless it asks to be left alone.
//!
//! Everything that is not known to be harmless is refused with EPERM. A call that the C library falls back from when the
//! kernel does not have it is answered with ENOSYS: `clone3`, whose flags no filter can see, and calls newer than this list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// On every architecture.
#[rustfmt::skip]
const ALLOWED: [libc::c_long; 251] = [
    libc::SYS_accept, libc::SYS_accept4, libc::SYS_adjtimex, libc::SYS_bind, libc::SYS_brk,
    libc::SYS_capget, libc::SYS_capset, libc::SYS_chdir, libc::SYS_clock_adjtime,
    libc::SYS_clock_getres, libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_close,
    libc::SYS_close_range, libc::SYS_connect, libc::SYS_copy_file_range, libc::SYS_dup,
    libc::SYS_dup3, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2, libc::SYS_eventfd2, libc::SYS_execve, libc::SYS_execveat,
    libc::SYS_exit, libc::SYS_exit_group, libc::SYS_faccessat, libc::SYS_faccessat2,
    libc::SYS_fadvise64, libc::SYS_fallocate, libc::SYS_fanotify_mark, libc::SYS_fchdir,
    libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchmodat2, libc::SYS_fchown,
    libc::SYS_fchownat, libc::SYS_fcntl, libc::SYS_fdatasync, libc::SYS_fgetxattr,
    libc::SYS_flistxattr, libc::SYS_flock, libc::SYS_fremovexattr, libc::SYS_fsetxattr,
    libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_fsync, libc::SYS_ftruncate, libc::SYS_futex,
    libc::SYS_futex_waitv, libc::SYS_getcpu, libc::SYS_getcwd, libc::SYS_getdents64,
    libc::SYS_getegid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getgroups,
    libc::SYS_getitimer, libc::SYS_getpeername, libc::SYS_getpgid, libc::SYS_getpid,
    libc::SYS_getppid, libc::SYS_getpriority, libc::SYS_getrandom, libc::SYS_getresgid,
    libc::SYS_getresuid, libc::SYS_getrlimit, libc::SYS_get_robust_list, libc::SYS_getrusage,
    libc::SYS_getsid, libc::SYS_getsockname, libc::SYS_getsockopt, libc::SYS_gettid,
    libc::SYS_gettimeofday, libc::SYS_getuid, libc::SYS_getxattr, libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1, libc::SYS_inotify_rm_watch, libc::SYS_io_cancel, libc::SYS_ioctl,
    libc::SYS_io_destroy, libc::SYS_io_getevents, libc::SYS_ioprio_get,
    libc::SYS_ioprio_set, libc::SYS_io_setup, libc::SYS_io_submit, libc::SYS_kill,
    libc::SYS_landlock_add_rule, libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self, libc::SYS_lgetxattr, libc::SYS_linkat, libc::SYS_listen,
    libc::SYS_listxattr, libc::SYS_llistxattr, libc::SYS_lremovexattr, libc::SYS_lseek,
    libc::SYS_lsetxattr, libc::SYS_madvise, libc::SYS_membarrier, libc::SYS_memfd_create,
    libc::SYS_memfd_secret, libc::SYS_mincore, libc::SYS_mkdirat, libc::SYS_mknodat,
    libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_mlockall, libc::SYS_mmap, libc::SYS_mprotect,
    libc::SYS_mq_getsetattr, libc::SYS_mq_notify, libc::SYS_mq_open, libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend, libc::SYS_mq_unlink, libc::SYS_mremap, libc::SYS_mseal,
    libc::SYS_msgctl, libc::SYS_msgget, libc::SYS_msgrcv, libc::SYS_msgsnd, libc::SYS_msync,
    libc::SYS_munlock, libc::SYS_munlockall, libc::SYS_munmap, libc::SYS_name_to_handle_at,
    libc::SYS_nanosleep, libc::SYS_newfstatat, libc::SYS_openat, libc::SYS_openat2,
    libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal, libc::SYS_pipe2,
    libc::SYS_pkey_alloc, libc::SYS_pkey_free, libc::SYS_pkey_mprotect, libc::SYS_ppoll,
    libc::SYS_prctl, libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2, libc::SYS_prlimit64,
    libc::SYS_process_mrelease, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev,
    libc::SYS_pselect6, libc::SYS_ptrace, libc::SYS_pwrite64, libc::SYS_pwritev,
    libc::SYS_pwritev2, libc::SYS_read, libc::SYS_readahead, libc::SYS_readlinkat, libc::SYS_readv,
    libc::SYS_recvfrom, libc::SYS_recvmmsg, libc::SYS_recvmsg, libc::SYS_remap_file_pages,
    libc::SYS_removexattr, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_restart_syscall,
    libc::SYS_rseq, libc::SYS_rt_sigaction, libc::SYS_rt_sigpending, libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigqueueinfo, libc::SYS_rt_sigreturn, libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait, libc::SYS_rt_tgsigqueueinfo, libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr, libc::SYS_sched_getparam, libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min, libc::SYS_sched_getscheduler,
    libc::SYS_sched_rr_get_interval, libc::SYS_sched_setaffinity, libc::SYS_sched_setattr,
    libc::SYS_sched_setparam, libc::SYS_sched_setscheduler, libc::SYS_sched_yield,
    libc::SYS_seccomp, libc::SYS_semctl, libc::SYS_semget, libc::SYS_semop, libc::SYS_semtimedop,
    libc::SYS_sendfile, libc::SYS_sendmmsg, libc::SYS_sendmsg, libc::SYS_sendto,
    libc::SYS_setfsgid, libc::SYS_setfsuid, libc::SYS_setgid, libc::SYS_setgroups,
    libc::SYS_setitimer, libc::SYS_setpgid, libc::SYS_setpriority, libc::SYS_setregid,
    libc::SYS_setresgid, libc::SYS_setresuid, libc::SYS_setreuid, libc::SYS_setrlimit,
    libc::SYS_set_robust_list, libc::SYS_setsid, libc::SYS_setsockopt, libc::SYS_set_tid_address,
    libc::SYS_setuid, libc::SYS_setxattr, libc::SYS_shmat, libc::SYS_shmctl, libc::SYS_shmdt,
    libc::SYS_shmget, libc::SYS_shutdown, libc::SYS_sigaltstack, libc::SYS_signalfd4,
    libc::SYS_socketpair, libc::SYS_splice, libc::SYS_statfs, libc::SYS_statx, libc::SYS_symlinkat,
    libc::SYS_sync, libc::SYS_sync_file_range, libc::SYS_syncfs, libc::SYS_sysinfo, libc::SYS_tee,
    libc::SYS_tgkill, libc::SYS_timer_create, libc::SYS_timer_delete, libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime, libc::SYS_timer_settime, libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime, libc::SYS_timerfd_settime, libc::SYS_times, libc::SYS_tkill,
    libc::SYS_truncate, libc::SYS_umask, libc::SYS_uname, libc::SYS_unlinkat, libc::SYS_utimensat,
    libc::SYS_vmsplice, libc::SYS_wait4, libc::SYS_waitid, libc::SYS_write, libc::SYS_writev,
];

/// Older forms that only this architecture has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_HERE: [libc::c_long; 37] = [
    libc::SYS_access, libc::SYS_alarm, libc::SYS_arch_prctl, libc::SYS_chmod, libc::SYS_chown,
    libc::SYS_creat, libc::SYS_dup2, libc::SYS_epoll_create, libc::SYS_epoll_wait,
    libc::SYS_eventfd, libc::SYS_fork, libc::SYS_futimesat, libc::SYS_getdents, libc::SYS_getpgrp,
    libc::SYS_inotify_init, libc::SYS_lchown, libc::SYS_link, libc::SYS_lstat, libc::SYS_mkdir,
    libc::SYS_mknod, libc::SYS_modify_ldt, libc::SYS_open, libc::SYS_pause, libc::SYS_pipe,
    libc::SYS_poll, libc::SYS_readlink, libc::SYS_rename, libc::SYS_rmdir, libc::SYS_select,
    libc::SYS_signalfd, libc::SYS_stat, libc::SYS_symlink, libc::SYS_time, libc::SYS_unlink,
    libc::SYS_utime, libc::SYS_utimes, libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: [libc::c_long; 0] = [];

/// Numbers that the C library's list does not have yet; these are the same everywhere: `cachestat` (451), `map_shadow_stack`
/// to `lsm_list_modules` (453…461), `setxattrat` to `removexattrat` (463…466), `file_getattr`, `file_setattr` (468, 469).
const ALLOWED_NEW: [i64; 16] = [
    451, 453, 454, 455, 456, 457, 458, 459, 460, 461, 463, 464, 465, 466, 468, 469,
];
/// What a kernel may have that was not there when this list was written.
const UNKNOWN: std::ops::Range<i64> = 470..600;

/// What comes with a capability.
const WITH_CAPABILITY: [(&str, &[libc::c_long]); 4] = [
    (
        "CAP_SYS_ADMIN",
        &[
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fsopen,
            libc::SYS_fspick,
            libc::SYS_mount,
            libc::SYS_mount_setattr,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_pivot_root,
            libc::SYS_setdomainname,
            libc::SYS_sethostname,
            libc::SYS_setns,
            libc::SYS_umount2,
            libc::SYS_unshare,
        ],
    ),
    ("CAP_SYS_CHROOT", &[libc::SYS_chroot]),
    (
        "CAP_SYS_NICE",
        &[
            libc::SYS_get_mempolicy,
            libc::SYS_mbind,
            libc::SYS_set_mempolicy,
            libc::SYS_set_mempolicy_home_node,
        ],
    ),
    ("CAP_SYS_TTY_CONFIG", &[libc::SYS_vhangup]),
];

/// New namespaces of every kind, as `clone` asks for them.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// Linux as it is, its 32-bit and address layout variants, and the question which one is in force.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];
/// The kernel's cryptography, which has more holes than users, and the way to the hypervisor.
const REFUSED_SOCKETS: [libc::c_int; 2] = [libc::AF_ALG, libc::AF_VSOCK];

/// Filters to install one after the other; the strictest answer of all counts.
#[derive(Clone)]
pub(crate) struct Filters(Arc<[BpfProgram]>);

impl Filters {
    pub(crate) fn none() -> Self {
        Self(Arc::new([]))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// For this thread and all that it becomes.
    pub(crate) fn install(&self) -> Result<(), seccompiler::Error> {
        self.0.iter().try_for_each(|f| seccompiler::apply_filter(f))
    }
}

/// The filters for a set of capabilities, with `CAP_`. Those of the usual sets are compiled once.
pub(crate) fn filters(capabilities: &BTreeSet<&str>) -> Result<Filters, seccompiler::BackendError> {
    static USUAL: OnceLock<Filters> = OnceLock::new();
    let extra: Vec<&str> = WITH_CAPABILITY
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| capabilities.contains(name))
        .collect();
    if extra != ["CAP_SYS_CHROOT"] {
        return compile(&extra);
    }
    if let Some(filters) = USUAL.get() {
        return Ok(filters.clone());
    }
    let filters = compile(&extra)?;
    Ok(USUAL.get_or_init(|| filters).clone())
}

/// Compiles the filters of the default capabilities, so that whoever is forked from here has them.
pub(crate) fn warm_up() {
    // what fails here fails again, and is reported, where it matters
    let _ = filters(&BTreeSet::from(["CAP_SYS_CHROOT"]));
}

fn compile(capabilities: &[&str]) -> Result<Filters, seccompiler::BackendError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let mut rules = rules()?;
    let granted = WITH_CAPABILITY
        .iter()
        .filter(|(name, _)| capabilities.contains(name));
    for call in granted.flat_map(|(_, calls)| *calls) {
        rules.insert(*call, Vec::new());
    }
    let is_missing = !rules.contains_key(&libc::SYS_clone3);
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let allowed = SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch)?;
    // of two refusals that of the filter that was installed last counts
    let programs: [BpfProgram; 2] = [
        allowed.try_into()?,
        missing(is_missing.then_some(libc::SYS_clone3)),
    ];
    Ok(Filters(Arc::new(programs)))
}

/// Answers that a call is not there, for those that are newer than this list and one more. By hand: as a rule for each number
/// it would be hundreds of instructions, which the kernel looks at one by one when a container starts.
fn missing(one_more: Option<libc::c_long>) -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const NUMBER: u32 = 0;
    let instruction = |code, k, jt, jf| sock_filter { code, jt, jf, k };
    let number = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    let not_there = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    vec![
        instruction(LOAD_WORD, NUMBER, 0, 0),
        instruction(IF_EQUAL, one_more.map_or(u32::MAX, number), 3, 0),
        instruction(IF_AT_LEAST, number(UNKNOWN.end), 1, 0),
        instruction(IF_AT_LEAST, number(UNKNOWN.start), 1, 0),
        instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        instruction(RETURN, not_there, 0, 0),
    ]
}

/// No conditions mean: whatever the arguments.
fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let always = ALLOWED.into_iter().chain(ALLOWED_HERE).chain(ALLOWED_NEW);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        always.map(|call| (call, Vec::new())).collect();
    let first =
        |operator, value| SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value);
    let no_namespaces = first(SeccompCmpOp::MaskedEq(NEW_NAMESPACES), 0)?;
    rules.insert(
        libc::SYS_clone,
        vec![SeccompRule::new(vec![no_namespaces])?],
    );
    let personalities: Result<Vec<SeccompRule>, _> = PERSONALITIES
        .iter()
        .map(|p| SeccompRule::new(vec![first(SeccompCmpOp::Eq, *p)?]))
        .collect();
    rules.insert(libc::SYS_personality, personalities?);
    let sockets: Result<Vec<SeccompCondition>, _> = REFUSED_SOCKETS
        .iter()
        .map(|family| first(SeccompCmpOp::Ne, u64::from(family.cast_unsigned())))
        .collect();
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(sockets?)?]);
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{filters, rules};

    #[test]
    fn what_reaches_beyond_a_container_is_not_on_the_list() {
        let rules = rules().unwrap();
        let refused = [
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
            libc::SYS_init_module,
            libc::SYS_kexec_load,
            libc::SYS_open_by_handle_at,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_quotactl,
            libc::SYS_pidfd_getfd,
        ];
        for call in refused {
            assert!(!rules.contains_key(&call), "{call}");
        }
    }

    #[test]
    fn filters_compile_for_every_set_of_capabilities() {
        for set in [
            &[][..],
            &["CAP_SYS_CHROOT"],
            &["CAP_SYS_ADMIN", "CAP_SYS_NICE"],
        ] {
            let set: BTreeSet<&str> = set.iter().copied().collect();
            assert_eq!(filters(&set).unwrap().len(), 2, "{set:?}");
        }
    }
}
