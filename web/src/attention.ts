/** A panel as weighted edges: of each head in CSR, or of a pattern computed from its rule. */

import type { Header, Panel, Summary } from "./payload";
import { parse } from "./pattern/parse";
import type { Pattern } from "./pattern/patterns";
import { keys, size } from "./pattern/row";

export interface Edge {
  query: number;
  key: number;
  weight: number;
}

export class Attention {
  readonly header: Header;
  readonly n: number;
  readonly heads: number[]; // of each layer
  readonly rule: Pattern | null;
  private readonly first: number[] = []; // number of the first head of each layer
  private readonly ptr: Uint32Array;
  private readonly key: Uint16Array;
  private readonly weight: Float32Array;
  readonly tiles: Uint8Array | null;

  constructor(panel: Panel) {
    this.header = panel.header;
    this.n = panel.header.n;
    this.heads = panel.header.layers.map((layer) => layer.heads);
    let count = 0;
    for (const h of this.heads) {
      this.first.push(count);
      count += h;
    }
    this.rule = panel.header.kind === "pattern" ? parse(panel.header.pattern ?? "full()") : null;
    this.tiles = panel.header.tiles ? panel.bytes("tiles") : null;
    const degree = this.rule ? new Uint16Array(0) : panel.shorts("degree");
    this.ptr = new Uint32Array(degree.length + 1);
    for (let r = 0; r < degree.length; r++) this.ptr[r + 1] = this.ptr[r] + degree[r];
    this.key = this.rule ? new Uint16Array(0) : panel.shorts("keys");
    this.weight = new Float32Array(this.key.length);
    if (this.rule) return;
    for (let r = 0; r < degree.length; r++) for (let e = this.ptr[r] + 1; e < this.ptr[r + 1]; e++) this.key[e] += this.key[e - 1];
    if (panel.header.bits === 16) panel.shorts("weights").forEach((q, e) => (this.weight[e] = q / 65535));
    else panel.bytes("weights").forEach((q, e) => (this.weight[e] = (q / 255) ** 2));
  }

  token(i: number): string {
    return this.header.tokens ? this.header.tokens[i] : String(i);
  }

  /** The text of the pattern, or of the first layer's, if the page can compute it and it is not all pairs. */
  patternText(): string | null {
    const text = this.header.pattern ?? this.header.layers[0].pattern ?? "";
    if (!text || text === "full()") return this.rule ? text : null;
    try {
      parse(text);
      return text;
    } catch {
      return null;
    }
  }

  /** A head worth opening with: sharp, and neither a sink nor the token itself or a neighbour. */
  startingHead(): { layer: number; head: number } {
    const sharp = (s: Summary): number => s.peak * (1 - s.sink_share) * (1 - Math.max(s.own, s.previous, s.following));
    const best = this.header.summary?.reduce((a, b) => (sharp(b) > sharp(a) ? b : a));
    return { layer: best?.layer ?? 0, head: best?.head ?? 0 };
  }

  /** A threshold at which about every token has an edge. */
  startingThreshold(layer: number, head: number): number {
    if (this.rule) return 0;
    const weights: number[] = [];
    this.forEach(layer, head, (_i, _j, weight) => weights.push(weight));
    weights.sort((a, b) => b - a);
    const wanted = weights[Math.min(Math.round(1.5 * this.n), weights.length - 1)] ?? 0;
    return [0.2, 0.1, 0.05, 0.02, 0.01].find((t) => t <= wanted) ?? 0;
  }

  summary(layer: number, head: number): Summary | undefined {
    return this.header.summary?.[this.first[layer] + head];
  }

  numberOf(layer: number, head: number): number {
    return this.first[layer] + head;
  }

  /** The edges of one query, by key. */
  row(layer: number, head: number, query: number): Edge[] {
    if (this.rule) {
      const row = this.rule.row(query, this.n, this.n);
      const weight = 1 / Math.max(size(row), 1);
      return keys(row).map((key) => ({ query, key, weight }));
    }
    const r = this.numberOf(layer, head) * this.n + query;
    const out: Edge[] = [];
    for (let e = this.ptr[r]; e < this.ptr[r + 1]; e++) out.push({ query, key: this.key[e], weight: this.weight[e] });
    return out;
  }

  /** Calls `each` with every edge of a head, without making objects. */
  forEach(layer: number, head: number, each: (query: number, key: number, weight: number) => void): void {
    if (this.rule) {
      for (let i = 0; i < this.n; i++) for (const e of this.row(layer, head, i)) each(e.query, e.key, e.weight);
      return;
    }
    const base = this.numberOf(layer, head) * this.n;
    for (let i = 0; i < this.n; i++) for (let e = this.ptr[base + i]; e < this.ptr[base + i + 1]; e++) each(i, this.key[e], this.weight[e]);
  }

  /** The strongest edges of a head from `threshold` on, weakest first so that strong ones are drawn last. */
  edges(layer: number, head: number, threshold: number, most: number): Edge[] {
    const found: Edge[] = [];
    this.forEach(layer, head, (query, key, weight) => {
      if (weight >= threshold && weight > 0) found.push({ query, key, weight });
    });
    found.sort((a, b) => a.weight - b.weight);
    return found.slice(Math.max(found.length - most, 0));
  }

  /** What attends to a token. */
  into(layer: number, head: number, key: number): Edge[] {
    const found: Edge[] = [];
    if (this.rule && this.n > 4096) return found;
    this.forEach(layer, head, (query, k, weight) => {
      if (k === key && weight > 0) found.push({ query, key, weight });
    });
    return found;
  }
}
