/** The pattern lab: the text of a pattern, and beside it its picture and its measures as it is typed. */

import { Attention } from "../attention";
import type { Theme } from "../colours";
import { el } from "../dom";
import { countPairs, MOST_MEASURED, measures } from "../pattern/measures";
import { parse } from "../pattern/parse";
import { BadPattern } from "../pattern/patterns";
import type { Header } from "../payload";
import type { Store } from "../state";
import { drawGraph } from "./graph";
import { drawMap, home } from "./map";

const EXAMPLES = [
  "full()",
  "causal()",
  "window(3)",
  "window(2) | global_tokens(1)",
  "causal() & (window(4) | strided(8))",
  "ring(1) | random_edges(2, seed=0)",
  "bigbird(block=4, random=2, seed=0)",
  "dilated(3, 4) | global_tokens((0, 16))",
];
const SIZES = [8, 16, 32, 64, 128, 256, 512, 4096, 65_536, 1 << 20];
const COUNTED = 65_536;

export function attentionOf(text: string, n: number): Attention {
  const header: Header = { kind: "pattern", title: text, n, pattern: text, arrays: {}, layers: [{ name: "pattern", heads: 1, rule: "", plan: "" }] };
  return new Attention({ header, bytes: () => new Uint8Array(0), shorts: () => new Uint16Array(0) });
}

export class Lab {
  readonly root: HTMLElement;
  private readonly text: HTMLTextAreaElement;
  private readonly problem: HTMLElement;
  private readonly numbers: HTMLElement;
  private readonly map: HTMLCanvasElement;
  private readonly ring: HTMLCanvasElement;
  private measured = "";
  private known: Attention | null = null;

  constructor(private readonly store: Store) {
    this.text = el("textarea", { id: "pattern", rows: 3, spellcheck: "false", "aria-describedby": "problem", input: () => store.set({ pattern: this.text.value }) });
    this.text.value = store.now.pattern;
    const sizes = el("select", { id: "lab-size", change: () => store.set({ tokens: Number(sizes.value) }) });
    for (const n of SIZES) sizes.append(el("option", { value: n, selected: n === store.now.tokens }, n.toLocaleString("en")));
    const examples = el("div", { class: "examples" });
    for (const one of EXAMPLES) examples.append(el("button", { type: "button", click: () => this.write(one) }, one));
    this.problem = el("p", { id: "problem", role: "alert", class: "problem" });
    this.numbers = el("dl", { id: "measures", "aria-live": "polite" });
    this.map = el("canvas", { id: "lab-map", role: "img", "aria-label": "the pairs of the pattern" });
    this.ring = el("canvas", { id: "lab-graph", role: "img", "aria-label": "the pattern as a graph" });
    const labels = [el("label", { for: "pattern" }, "pattern"), el("label", { for: "lab-size" }, "tokens")];
    this.root = el("div", { class: "laboratory" }, el("div", { class: "lab-text" }, labels[0], this.text, this.problem, el("div", { class: "row" }, labels[1], sizes), examples, this.numbers), el("div", { class: "lab-pictures" }, this.map, this.ring));
  }

  private write(text: string): void {
    this.text.value = text;
    this.store.set({ pattern: text });
  }

  draw(theme: Theme): void {
    const { pattern, tokens: n } = this.store.now;
    const wanted = `${n} ${pattern}`;
    if (wanted !== this.measured) {
      this.measured = wanted;
      try {
        parse(pattern).row(0, n, n);
        this.measure(n, pattern);
        this.known = attentionOf(pattern, n);
        this.problem.textContent = "";
      } catch (error) {
        if (!(error instanceof BadPattern)) throw error;
        this.problem.textContent = `${error.message} (at character ${error.at + 1})`;
      }
    }
    if (!this.known) return;
    this.map.dataset.pattern = this.known.header.title;
    const p = { attention: this.known, layer: 0, head: 0, threshold: 0, lit: null };
    this.ring.style.display = this.known.n <= 128 ? "" : "none";
    drawMap(this.map, theme, { ...p, cell: null, camera: home() });
    if (this.known.n <= 128) drawGraph(this.ring, theme, { ...p, hops: null, step: 0 });
  }

  private measure(n: number, text: string): void {
    const rule = parse(text);
    const rows: [string, string][] = [];
    const all = n * n;
    const share = (pairs: number): string => `${pairs.toLocaleString("en")} (${((100 * pairs) / all).toPrecision(3)}% of all)`;
    if (n <= MOST_MEASURED) {
      const m = measures(rule, n);
      rows.push(["pairs", share(m.pairs)], ["spectral gap", Number.isNaN(m.gap) ? "—" : m.gap.toFixed(4)]);
      rows.push(["hops to reach all", m.layers === Number.POSITIVE_INFINITY ? "never" : String(m.layers)]);
      rows.push(["diameter", String(m.diameter)], ["components", String(m.components)]);
    } else if (n <= COUNTED) rows.push(["pairs", share(countPairs(rule, n))], ["gap and hops", `up to ${MOST_MEASURED} tokens`]);
    else rows.push(["pairs, gap and hops", "of fewer tokens; the picture is drawn from the rule"]);
    this.numbers.replaceChildren(...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  }
}
