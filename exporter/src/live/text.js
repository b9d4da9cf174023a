// What the other scripts share: elements of the page, and numbers as text. All data is inserted as
// text, never as markup, because names of tasks come from the observed program and can contain
// anything.
"use strict";

const $ = (id) => document.getElementById(id);

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// A number that rounds to the next unit has that unit: 1.00 ms, not 1.00e+3 µs. No text has an
// exponent.
const ROUNDS_UP = 0.9995;

// From a minute on, two units, as in the console: 2 min 10 s.
const LONG = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function duration(ns) {
  if (ns === null || ns === undefined) return "-";
  const seconds = Math.round(ns / 1e9);
  const first = LONG.findIndex(([, size]) => seconds >= size);
  if (seconds >= 60) {
    const [[unit, size], [smaller, part]] = [LONG[first], LONG[first + 1]];
    const rest = Math.floor((seconds % size) / part);
    return `${Math.floor(seconds / size)} ${unit}` + (rest ? ` ${rest} ${smaller}` : "");
  }
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= size * ROUNDS_UP) return (ns / size).toPrecision(3) + " " + unit;
  }
  return Math.round(ns) + " ns";
}

function count(n) {
  if (n === null || n === undefined) return "-";
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6]]) {
    if (n >= size * ROUNDS_UP) return (n / size).toPrecision(3) + unit;
  }
  if (n >= 9999.5) return (n / 1e3).toPrecision(3) + "k";
  if (n >= 99.5 || Number.isInteger(n)) return String(Math.round(n));
  return n < 0.001 ? "<0.001" : n.toPrecision(2);
}

// Formats seconds since 1970 as local time.
const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });

const percent = (ratio) => (ratio === null || ratio === undefined ? "-" : Math.round(ratio * 100) + "%");

const counted = (n, thing) => `${count(n)} ${thing}${n === 1 ? "" : "s"}`;

// As in the console: the runtime itself spawns the tasks that poll others for a dump.
const spawnLocation = (at) => (at.includes("src/task/details/dump.rs:") ? "a dump by Volt" : at);
