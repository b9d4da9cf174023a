//! `volt::sync` has every public item of `tokio::sync`, with the same signatures: a list of uses is
//! compiled with the types of either. Tokio's show that the list itself is right.

mod of_tokio;
mod of_volt;

#[test]
fn volt_has_every_item_of_tokios_sync_module() {
    of_volt::uses::all();
    of_tokio::uses::all();
}
