//! Tests of the arguments of every command, and of their limits.

use clap::CommandFactory;

use super::*;

#[test]
fn the_arguments_are_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn each_order_of_a_list_is_explained() {
    for command in ["tasks", "processes"] {
        let mut arguments = Arguments::command();
        let command = arguments.find_subcommand_mut(command).unwrap();
        let sort = command.get_arguments().find(|argument| argument.get_id() == "sort").unwrap();
        let orders = sort.get_possible_values();
        assert!(orders.len() > 1);
        for order in orders {
            let help = order.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{}", order.get_name());
        }
    }
}

#[test]
fn intervals_have_a_unit_and_bounds() {
    assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
    assert_eq!(interval("0.5s"), Ok(Duration::from_millis(500)));
    assert_eq!(interval("1h"), Ok(Duration::from_secs(3600)));
    for bad in ["0s", "0ms", "-1s", "1", "", "s", "nans", "infs", "1e300s", "2h", "10ms"] {
        assert!(interval(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_doctor_takes_one_snapshot_or_waits_long_enough() {
    assert_eq!(
        [interval_or_zero("0s"), interval_or_zero("100ms")],
        [Ok(Duration::ZERO), Ok(Duration::from_millis(100))]
    );
    for bad in ["1ms", "99ms", "2h", "-1s"] {
        assert!(interval_or_zero(bad).is_err(), "{bad}");
    }
}

#[test]
fn sizes_and_seconds_have_bounds() {
    assert_eq!([size("1M"), size("2G"), size("1048576")], [Ok(1 << 20), Ok(2 << 30), Ok(1 << 20)]);
    for bad in ["0", "1K", "1T", "", "M", "-1M", "99999999999999999999", "99999999999G"] {
        assert!(size(bad).is_err(), "{bad}");
    }
    assert_eq!(
        [seconds("2"), seconds("0.5"), seconds("300ms")].map(Result::unwrap).map(|time| time.as_millis()),
        [2000, 500, 300]
    );
    for bad in ["0", "-1", "nan", "x", ""] {
        assert!(seconds(bad).is_err(), "{bad}");
    }
}

#[test]
fn triggers_are_parsed_by_their_names() {
    assert_eq!("delay=10ms".parse(), Ok(On::Delay(Duration::from_millis(10))));
    assert_eq!("poll=20ms".parse(), Ok(On::Poll(Duration::from_millis(20))));
    assert_eq!("poll=4s".parse(), Ok(On::Poll(Duration::from_secs(4))));
    assert!(["poll=4001ms", "delay=5s"].iter().all(|text| text.parse::<On>().is_err()), "never recorded");
    assert!("poll".parse::<On>().is_err() && "poll=fast".parse::<On>().is_err());
    assert!(["stall", "panic", "rule", "rule=stalled-poll"].iter().all(|on| on.parse::<On>().is_ok()));
    let error = "rule=none-such".parse::<On>().unwrap_err();
    assert!(error.starts_with("the doctor has no rule named \"none-such\"; its rules are stalled-poll, "), "{error}");
    assert!("delay".parse::<On>().is_err() && "delay=fast".parse::<On>().is_err());
}
