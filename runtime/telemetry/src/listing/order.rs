//! Sorting of short lists for reports, in code that exists once.
//!
//! `slice::sort_by_key` is compiled anew for each type of element and key, to 6 KB of machine code
//! each time. The lists of snapshots, dumps and findings have more than twenty types: their sorts
//! were a tenth of the code that the runtime added to a program. So the numbers of the elements are
//! sorted here, by a function that exists once, and the elements are moved afterwards.
//!
//! A comparison is an indirect call, so a list that is sorted often or that is as long as the list
//! of all tasks uses `slice::sort_by_key`.

use std::cmp::Ordering;

/// Sorts a slice by a key, which is computed once for each element. Elements with equal keys keep
/// their order.
///
/// If `key` panics, the slice is unchanged.
///
/// ```
/// let mut names = ["worker", "task", "runtime"];
/// volt_telemetry::listing::order::sort_by_key(&mut names, |name| name.len());
/// assert_eq!(names, ["task", "worker", "runtime"]);
/// ```
pub fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    let keys: Vec<K> = items.iter().map(key).collect();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    sort_numbers(&mut order, &|one, other| keys[one].cmp(&keys[other]));
    // Each round completes a cycle of the permutation: an element goes to its place, and the one
    // from there is carried along until its own place is reached.
    for start in 0..order.len() {
        let mut at = start;
        while order[at] != start {
            let from = std::mem::replace(&mut order[at], at);
            items.swap(at, from);
            at = from;
        }
        order[at] = at;
    }
}

/// Not inlined, since one copy is the purpose of this module.
#[inline(never)]
fn sort_numbers(order: &mut [usize], compare: &dyn Fn(usize, usize) -> Ordering) {
    order.sort_by(|&one, &other| compare(one, other));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // proptest prints the failing case; it must not leave a file behind.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_order_is_that_of_the_standard_library(keys in prop::collection::vec(0..20u8, 0..60)) {
            // The numbers show whether elements with equal keys keep their order.
            let mut items: Vec<_> = keys.into_iter().zip(0..).collect();
            let mut expected: Vec<(u8, u32)> = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            sort_by_key(&mut items, |(key, _)| *key);
            prop_assert_eq!(items, expected);
        }
    }
}
