/** Opens the page: its data is in the element `data`; a page that is damaged says so. */

import { App } from "./app";
import { el } from "./dom";
import { type Measures, measures } from "./pattern/measures";
import { METHODS, PATTERNS, parse } from "./pattern/parse";
import { keys } from "./pattern/row";
import { unpack } from "./payload";
import "./style.css";

async function open(): Promise<void> {
  const root = document.getElementById("app") as HTMLElement;
  try {
    new App(root, await unpack(document.getElementById("data")?.textContent ?? ""));
  } catch (error) {
    console.error(error);
    const why = error instanceof Error ? error.message : String(error);
    root.replaceChildren(el("p", { id: "damaged", role: "alert", class: "problem" }, `This page is damaged: its data cannot be read (${why}). Write it again with edgewise.view(...).`));
  }
}

void open();

/** For the tests, which compare them with Python: the rows of a pattern, and its measures. */
export const rowsOf = (text: string, n: number): number[][] => {
  const pattern = parse(text);
  return Array.from({ length: n }, (_, i) => keys(pattern.row(i, n, n)));
};
export const words = [...Object.keys(PATTERNS), ...Object.values(PATTERNS).flatMap((one) => one.names), ...METHODS];
export const measuresOf = (text: string, n: number): Measures => measures(parse(text), n);
