/** Beside the picture: what a token attends to and what attends to it, the head, its rule and plan. */

import type { Attention, Edge } from "./attention";
import { el, percent, shown } from "./dom";

const LISTED = 8;

function bars(title: string, kind: string, edges: { token: string; at: number; weight: number }[], none: string): HTMLElement {
  const list = el("ol", { class: `bars ${kind}` });
  for (const { token, at, weight } of edges.slice(0, LISTED))
    list.append(
      el("li", {}, el("bdi", { class: "token", title: shown(token, 64) }, shown(token), token === String(at) ? null : el("span", { class: "quiet" }, ` ${at}`)), el("span", { class: "bar" }, el("i", { style: `width:${Math.round(100 * weight)}%` })), el("span", { class: "number" }, percent(weight))),
    );
  const more = edges.length > LISTED ? el("p", { class: "quiet" }, `and ${edges.length - LISTED} more`) : null;
  return el("section", {}, el("h2", {}, title), edges.length ? list : el("p", { class: "quiet" }, none), more);
}

const strongest = (edges: Edge[], threshold: number): Edge[] => edges.filter((e) => e.weight >= threshold && e.weight > 0).sort((a, b) => b.weight - a.weight);

/** What hovering over a token says, also to screen readers. */
export function sentence(a: Attention, layer: number, head: number, token: number, threshold: number): string {
  const name = (e: number, w: number): string => `“${shown(a.token(e))}” ${percent(w)}`;
  const out = strongest(a.row(layer, head, token), threshold).slice(0, 3);
  const into = strongest(a.into(layer, head, token), threshold).slice(0, 3);
  const to = out.length ? out.map((e) => name(e.key, e.weight)).join(", ") : "nothing here";
  const from = into.length ? `; attended to by ${into.map((e) => name(e.query, e.weight)).join(", ")}` : "";
  return `“${shown(a.token(token))}” attends to ${to}${from}`;
}

export function pairSentence(a: Attention, layer: number, head: number, [i, j]: [number, number]): string {
  const found = a.row(layer, head, i).find((e) => e.key === j);
  const least = a.header.complete || a.rule ? "0" : `at most ${percent(a.header.least ?? 0)}`;
  const weight = found ? percent(found.weight) : a.rule ? "not in the pattern" : least;
  return `“${shown(a.token(i))}” (${i}) to “${shown(a.token(j))}” (${j}): ${weight}`;
}

export function inspect(into: HTMLElement, a: Attention, layer: number, head: number, lit: number | null, threshold: number): void {
  const parts: Node[] = [];
  if (lit === null) parts.push(el("p", { class: "quiet hint" }, "Point at a token, or move with the arrow keys: what it attends to and what attends to it light up."));
  else {
    const out = strongest(a.row(layer, head, lit), threshold).map((e) => ({ token: a.token(e.key), at: e.key, weight: e.weight }));
    const back = strongest(a.into(layer, head, lit), threshold).map((e) => ({ token: a.token(e.query), at: e.query, weight: e.weight }));
    parts.push(el("p", { class: "lit" }, el("bdi", {}, shown(a.token(lit))), el("span", { class: "quiet" }, ` token ${lit}`)));
    parts.push(bars("attends to", "out", out, "no edge above the threshold"), bars("is attended to by", "into", back, "no edge above the threshold"));
  }
  const s = a.summary(layer, head);
  if (s) {
    const facts: [string, string][] = [
      ["entropy", `${s.entropy.toFixed(2)} nats`],
      ["mean distance", `${s.distance.toFixed(1)} tokens`],
      ["largest weight", percent(s.peak)],
      ["to itself", percent(s.own)],
      ["to the token before", percent(s.previous)],
      ["to the token after", percent(s.following)],
      ["sink", `${shown(a.token(s.sink), 12)} ${percent(s.sink_share)}`],
    ];
    const table = el("dl", {});
    for (const [name, value] of facts) table.append(el("dt", {}, name), el("dd", {}, el("bdi", {}, value)));
    parts.push(el("section", {}, el("h2", {}, `layer ${layer}, head ${head}`), table));
  }
  const info = a.header.layers[layer];
  if (info.rule) parts.push(el("section", {}, el("h2", {}, "rule"), el("pre", { tabindex: 0 }, info.rule)));
  if (info.plan) parts.push(el("section", {}, el("h2", {}, "plan"), el("pre", { tabindex: 0 }, info.plan)));
  if (!a.header.complete && a.header.least !== undefined)
    parts.push(el("p", { class: "quiet" }, `This file holds every edge above ${percent(a.header.least)}, and the strongest of every token.`));
  into.replaceChildren(...parts);
}
