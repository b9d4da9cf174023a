//! Tests of keys and of the mouse, whose actions depend on the drawn screen.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::terminal::input;

/// Presses a key while the model is drawn on a screen of this size.
fn press(model: &mut Model, code: KeyCode, size: (u16, u16)) {
    let mut hits = Hits::default();
    terminal(size).draw(|frame| draw(frame, model, Theme::new(true), &mut hits)).unwrap();
    let event = Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
    let action = input::action(&event, model.is_typing, &hits).expect("the key has an action");
    model.update(Message::Do(action));
}

#[test]
fn each_line_of_a_finding_can_be_reached() {
    let mut model = fixture::stalled_model(4, 5);
    show(&mut model, Screen::Doctor);
    let (low, high) = ((80, 24), (80, 60));
    let whole = screen(&model, high);
    let lines = whole.lines().skip_while(|line| !line.starts_with(" finding "));
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let first = screen(&model, low);
    let hidden: Vec<&str> = lines.iter().copied().filter(|line| !first.contains(line)).collect();
    assert!(!hidden.is_empty() && first.contains("PgDn and PgUp show the others"), "{first}");
    press(&mut model, KeyCode::PageDown, low);
    let next = screen(&model, low);
    hidden.iter().for_each(|line| assert!(next.contains(line), "{line:?} is not in\n{next}"));
    press(&mut model, KeyCode::PageUp, low);
    assert_eq!((screen(&model, low), model.position()), (first, Some(0)));
    press(&mut model, KeyCode::PageDown, low);
    press(&mut model, KeyCode::Down, low);
    assert_eq!((model.position(), model.finding_page), (Some(1), 0), "another finding begins with its first line");
}

#[test]
fn the_page_keys_move_over_rows_if_all_lines_fit() {
    let mut model = fixture::stalled_model(4, 5);
    show(&mut model, Screen::Doctor);
    let last = model.finding_rows().len() - 1;
    assert!((1..10).contains(&last));
    press(&mut model, KeyCode::PageDown, (200, 50));
    assert_eq!((model.position(), model.finding_page), (Some(last), 0));
    press(&mut model, KeyCode::PageUp, (200, 50));
    assert_eq!(model.position(), Some(0));
}

#[test]
fn a_note_takes_the_place_of_the_keys() {
    let mut model = fixture::model(2, 2);
    show(&mut model, Screen::Workers);
    press(&mut model, KeyCode::Enter, (80, 24));
    let last = |model: &Model| screen(model, (80, 24)).lines().last().unwrap().to_owned();
    assert_eq!(last(&model), format!(" {}", model.note().unwrap()));
    press(&mut model, KeyCode::Down, (80, 24));
    assert!(last(&model).starts_with(" ? help"), "{}", last(&model));
}

#[test]
fn every_tab_and_the_selected_row_are_where_a_click_finds_them() {
    for mut model in every_screen() {
        for size in [(80, 24), (120, 40)] {
            model.help_page = None;
            let mut hits = Hits::default();
            let mut terminal = terminal(size);
            terminal.draw(|frame| draw(frame, &model, Theme::new(true), &mut hits)).unwrap();
            let drawn = screen(&model, size);
            let lines: Vec<&str> = drawn.lines().collect();
            let first = size.1 - footer::height(size.0);
            for chosen in Screen::ALL {
                let find = |row: u16| Some((lines[usize::from(row)].find(&chosen.name()[..4])?, row));
                let (column, row) = (first..size.1 - 1).find_map(find).unwrap();
                assert_eq!(hits.at(column as u16, row), Some(Action::Show(chosen)), "{drawn}");
            }
            let marked = lines.iter().position(|line| line.starts_with('▸'));
            if let Some(row) = marked.filter(|_| model.incidents.open_call().is_none()) {
                assert_eq!(hits.at(7, row as u16), model.position().map(Action::Pick), "{drawn}");
            }
            model.help_page = Some(0);
            terminal.draw(|frame| draw(frame, &model, Theme::new(true), &mut hits)).unwrap();
            assert_eq!(hits.at(3, first), None, "what lies under the help is not clicked");
        }
    }
}
