//! Quantiles of a few measured values.

/// Returns the value below which `share` of the values lie. Sorts the values.
///
/// # Panics
/// Panics if there are no values.
pub(crate) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1).expect("something was measured");
    let at = share * last as f64;
    let (below, above) = (values[at.floor() as usize], values[at.ceil() as usize]);
    below + (above - below) * at.fract()
}
