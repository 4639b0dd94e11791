/** Patterns: for every query the keys that it attends to. The sets are those of edgewise.graphs. */

import { distinct } from "./philox";
import { difference, intersection, keys, ofKeys, type Row, run, union } from "./row";

export interface Pattern {
  row(i: number, n: number, m: number): Row;
}
export class BadPattern extends Error {
  constructor(
    message: string,
    readonly at = 0,
  ) {
    super(message);
  }
}
export const LISTED = 4096; // tokens up to which all rows may be listed: for .T, compose and power

const of = (row: Pattern["row"]): Pattern => ({ row });

export const full = (): Pattern => of((_i, _n, m) => run(0, m, m));
export const causal = (): Pattern => of((i, _n, m) => run(0, i + 1, m));
export const window = (radius: number): Pattern => of((i, _n, m) => run(i - radius, i + radius + 1, m));
export const dilated = (radius: number, step: number): Pattern =>
  of((i, _n, m) => {
    const reach = Math.min(radius, Math.floor(i / step));
    return run(i - reach * step, i + radius * step + 1, m, step);
  });
export const strided = (step: number): Pattern => of((i, _n, m) => run(i % step, m, m, step));
export const blocks = (size: number): Pattern =>
  of((i, _n, m) => {
    const first = Math.floor(i / size) * size;
    return run(first, first + size, m);
  });
export const prefix = (length: number): Pattern => of((i, _n, m) => run(0, Math.max(length, i + 1), m));
export const ring = (radius: number): Pattern =>
  of((i, _n, m) => union(run(i - radius, i + radius + 1, m), run(i + m - radius, m, m), run(0, i + radius + 1 - m, m)));
export const globalTokens = (tokens: number | number[]): Pattern =>
  of((i, _n, m) => {
    if (typeof tokens === "number") return i < tokens ? run(0, m, m) : run(0, tokens, m);
    return tokens.includes(i) ? run(0, m, m) : ofKeys(tokens.filter((t) => t < m).sort((a, b) => a - b));
  });
export const fixed = (step: number, width: number): Pattern =>
  of((_i, _n, m) => {
    if (width === step) return run(0, m, m);
    return union(...Array.from({ length: width }, (_, k) => run(step - width + k, m, m, step)));
  });
export const randomEdges = (count: number, seed: bigint): Pattern =>
  of((i, _n, m) => {
    if (count >= m) return run(0, m, m);
    return ofKeys(distinct(seed, i, count, m).sort((a, b) => a - b));
  });

/** Blocks of BigBird: global ones, a window of blocks, and random ones among the others. */
export function bigbird(block: number, random: number, windowed: number, first: number, last: number, seed: bigint): Pattern {
  function columns(b: number, high: number, wide: number): Row {
    if (b < Math.min(first, high) || b >= Math.max(high - last, Math.min(first, high))) return run(0, wide, wide);
    const low = Math.min(first, wide);
    const top = Math.max(wide - last, 0);
    const reach = Math.floor(windowed / 2);
    const near = intersection(run(b - reach, b + reach + 1, wide), run(low, top, wide));
    const steady = union(run(0, low, wide), run(Math.max(low, top), wide, wide), near);
    const free = keys(difference(run(0, wide, wide), steady));
    const drawn = distinct(seed, b, Math.min(random, wide), free.length, 0).filter((t) => t >= 0);
    return union(steady, ofKeys(drawn.map((t) => free[t]).sort((x, y) => x - y)));
  }
  return of((i, n, m) => {
    const found = columns(Math.floor(i / block), Math.ceil(n / block), Math.ceil(m / block));
    return found.flatMap((r) => run(r.start * block, r.stop * block, m));
  });
}

export const either = (a: Pattern, b: Pattern): Pattern => of((i, n, m) => union(a.row(i, n, m), b.row(i, n, m)));
export const both = (a: Pattern, b: Pattern): Pattern => of((i, n, m) => intersection(a.row(i, n, m), b.row(i, n, m)));
export const without = (a: Pattern, b: Pattern): Pattern => of((i, n, m) => difference(a.row(i, n, m), b.row(i, n, m)));
export const complement = (a: Pattern): Pattern => of((i, n, m) => difference(run(0, m, m), a.row(i, n, m)));

/** All rows of a pattern, remembered for the last size. */
function listed(pattern: Pattern): (n: number, m: number) => Row[] {
  let last: { n: number; m: number; rows: Row[] } | null = null;
  return (n, m) => {
    if (Math.max(n, m) > LISTED) throw new BadPattern(`.T, compose and power are drawn for at most ${LISTED} tokens here`);
    if (!last || last.n !== n || last.m !== m) last = { n, m, rows: Array.from({ length: n }, (_, i) => pattern.row(i, n, m)) };
    return last.rows;
  };
}

export function transpose(a: Pattern): Pattern {
  const rows = listed(a);
  let known: { rows: Row[]; columns: number[][] } | null = null;
  return of((j, n, m) => {
    const found = rows(m, n);
    if (known?.rows !== found) {
      const columns: number[][] = Array.from({ length: n }, () => []);
      found.forEach((row, i) => keys(row).forEach((key) => columns[key].push(i)));
      known = { rows: found, columns };
    }
    return ofKeys(known.columns[j]);
  });
}

/** {(i + by, j + over)}: the pattern is evaluated for n - by queries and m - over keys. */
export const shifted = (a: Pattern, by: number, over: number): Pattern =>
  of((i, n, m) => {
    if (i - by < 0 || n - by <= 0 || m - over <= 0) return [];
    const moved = a.row(i - by, n - by, m - over).flatMap((r) => run(r.start + over, r.stop + over, m, r.step));
    return moved;
  });

export function compose(a: Pattern, b: Pattern): Pattern {
  const second = listed(b);
  return of((i, n, m) => {
    const rows = second(m, m);
    return union(...keys(a.row(i, n, m)).map((j) => rows[j]), []);
  });
}

export function power(a: Pattern, hops: number): Pattern {
  return hops <= 1 ? a : compose(power(a, hops - 1), a);
}
