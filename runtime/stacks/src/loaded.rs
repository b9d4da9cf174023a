//! Keeps the library that contains Volt loaded.
//!
//! A program may load a library that contains Volt, such as an extension of an interpreter, and
//! unload it later. But the kernel keeps the address of Volt's signal handlers for as long as the
//! program runs, and a signal may arrive late. After `dlclose`, it would run code that is not
//! mapped any more. Therefore `dlclose` has no effect on a library whose Volt has built a runtime.
//!
//! Rejected: to restore the former handlers when the last runtime ends. A handler that was
//! installed over Volt's may call it at any later time.

/// Marks the library that contains this function as never to be unloaded. Has no effect if that is
/// the program itself, on systems other than Linux, and if the loader refuses.
pub fn stay() {
    #[cfg(all(target_os = "linux", not(target_feature = "crt-static"), not(any(loom, miri))))]
    imp::stay();
}

#[cfg(all(target_os = "linux", not(target_feature = "crt-static"), not(any(loom, miri))))]
mod imp {
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicBool, Ordering};

    pub(super) fn stay() {
        static IS_MARKED: AtomicBool = AtomicBool::new(false);
        // ORDERING: Relaxed; only the value matters. Threads that run this concurrently may mark
        // the library twice, which is harmless. A `Once` would block forever in a child that was
        // forked meanwhile.
        if IS_MARKED.load(Ordering::Relaxed) {
            return;
        }
        let mut info = MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: `info` has room for the result, and any address is allowed.
        let is_found = unsafe { libc::dladdr(stay as *const () as *const libc::c_void, info.as_mut_ptr()) } != 0;
        if is_found {
            // SAFETY: `dladdr` has written it.
            let file = unsafe { info.assume_init() }.dli_fname;
            // `RTLD_NOLOAD`: loads nothing. The program itself is not found under its name, and is
            // never unloaded.
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            // SAFETY: `file` is a string of the loader. No code of a library is run, because none
            // is loaded. The reference that this returns is kept forever.
            let _library = unsafe { libc::dlopen(file, flags) };
        }
        // ORDERING: Relaxed; see above.
        IS_MARKED.store(true, Ordering::Relaxed);
    }
}
