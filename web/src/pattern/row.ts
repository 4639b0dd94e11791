/** The keys of one query: sorted runs start, start + step, … below stop, and their set algebra. */

export interface Run {
  start: number;
  stop: number;
  step: number;
}
export type Row = Run[];

/** A run clipped to 0 ≤ key < m; none if nothing is left. */
export function run(start: number, stop: number, m: number, step = 1): Row {
  if (start < 0) start += Math.ceil(-start / step) * step;
  stop = Math.min(stop, m);
  if (start >= stop) return [];
  return start + step >= stop ? [{ start, stop: start + 1, step: 1 }] : [{ start, stop, step }];
}

export function size(row: Row): number {
  let total = 0;
  for (const r of row) total += Math.ceil((r.stop - r.start) / r.step);
  return total;
}

export function has(row: Row, key: number): boolean {
  return row.some((r) => key >= r.start && key < r.stop && (key - r.start) % r.step === 0);
}

export function keys(row: Row): number[] {
  const out: number[] = [];
  for (const r of row) for (let j = r.start; j < r.stop; j += r.step) out.push(j);
  return row.some((r) => r.step > 1) ? out.sort((a, b) => a - b) : out;
}

/** Sorted keys, perhaps repeated, as runs of step 1. */
export function ofKeys(sorted: number[]): Row {
  const out: Row = [];
  for (const key of sorted) {
    const last = out[out.length - 1];
    if (last && key <= last.stop) last.stop = Math.max(last.stop, key + 1);
    else out.push({ start: key, stop: key + 1, step: 1 });
  }
  return out;
}

function plain(row: Row): Row {
  return row.every((r) => r.step === 1) ? row : ofKeys(keys(row));
}

/** Intervals of a and b under a truth table: where `keep(in a, in b)`. */
function swept(a: Row, b: Row, keep: (a: boolean, b: boolean) => boolean): Row {
  const ends = new Set<number>();
  for (const r of [...a, ...b]) ends.add(r.start).add(r.stop);
  const marks = [...ends].sort((x, y) => x - y);
  const out: Row = [];
  let x = 0;
  let y = 0;
  for (let t = 0; t + 1 < marks.length; t++) {
    const at = marks[t];
    while (x < a.length && a[x].stop <= at) x++;
    while (y < b.length && b[y].stop <= at) y++;
    if (!keep(x < a.length && a[x].start <= at, y < b.length && b[y].start <= at)) continue;
    const last = out[out.length - 1];
    if (last && last.stop === at) last.stop = marks[t + 1];
    else out.push({ start: at, stop: marks[t + 1], step: 1 });
  }
  return out;
}

/** Runs in order, without overlaps: those of trapezoids may overlap. */
function disjoint(row: Row): Row {
  const sorted = plain(row).slice().sort((a, b) => a.start - b.start);
  const out: Row = [];
  for (const r of sorted) {
    const last = out[out.length - 1];
    if (last && r.start <= last.stop) last.stop = Math.max(last.stop, r.stop);
    else out.push({ ...r });
  }
  return out;
}

export function union(...rows: Row[]): Row {
  const some = rows.filter((row) => row.length);
  return some.length === 1 ? some[0] : disjoint(some.flat());
}

export function intersection(a: Row, b: Row): Row {
  return a.length && b.length ? swept(plain(a), plain(b), (x, y) => x && y) : [];
}

export function difference(a: Row, b: Row): Row {
  return b.length ? swept(plain(a), plain(b), (x, y) => x && !y) : a;
}
