//! The inputs of the clock: the processor's cycle counter, and whether that counter can be trusted.

/// The inputs of the clock. The loom models and the tests replace them.
pub(crate) trait Source {
    /// Reads the processor's cycle counter.
    fn cycles(&self) -> u64;
    /// Reads the system clock, ns.
    fn system_ns(&self) -> u64;
    /// Returns whether, according to the kernel, the counter runs at one speed and agrees on all
    /// processors.
    fn is_trusted(&self) -> bool;
    /// Returns how often this program was forked. A lock that was taken before a fork has no holder
    /// in the child.
    fn forks(&self) -> u32;
}

/// Reads the processor's cycle counter; 0 where there is none that the clock could use.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Reads the processor's cycle counter; 0 where there is none that the clock could use.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn cycles() -> u64 {
    0
}

/// Returns whether, according to the kernel, the counter runs at one speed and agrees on all
/// processors.
pub(crate) fn is_trustworthy() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    {
        const POWER_MANAGEMENT: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        let leaf = core::arch::x86_64::__cpuid(0x8000_0000);
        let is_invariant =
            leaf.eax >= POWER_MANAGEMENT && core::arch::x86_64::__cpuid(POWER_MANAGEMENT).edx & INVARIANT != 0;
        let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        is_invariant && source.is_ok_and(|source| source.trim() == "tsc")
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    false
}
