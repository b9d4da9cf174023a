//! Tests of programs and libraries that require Tokio's runtime. They run on Tokio (`cargo test`)
//! and on Volt (`cargo volt test`).

mod within;

mod clients;
mod grpc;
mod proxy;
mod web;
