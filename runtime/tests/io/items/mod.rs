//! `volt::net`, `fs`, `io`, `process` and `signal` have every public item of Tokio's modules, with
//! the same signatures: lists of uses are compiled with the types of either. Tokio's show that the
//! lists themselves are right.

mod of_tokio;
mod of_volt;

#[test]
fn volt_has_every_item_of_tokios_modules_of_the_system() {
    of_volt::sockets::all();
    of_volt::unix::all();
    of_volt::system::all();
    of_tokio::sockets::all();
    of_tokio::unix::all();
    of_tokio::system::all();
}
