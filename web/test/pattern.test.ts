import { describe, expect, it } from "vitest";
import { countPairs, measures } from "../src/pattern/measures";
import { parse } from "../src/pattern/parse";
import { BadPattern } from "../src/pattern/patterns";
import { keys } from "../src/pattern/row";

const rows = (text: string, n: number): number[][] => Array.from({ length: n }, (_, i) => keys(parse(text).row(i, n, n)));

describe("the sets of patterns", () => {
  it("are those of their definitions", () => {
    expect(rows("window(1)", 3)).toEqual([[0, 1], [0, 1, 2], [1, 2]]);
    expect(rows("causal() & window(1)", 3)).toEqual([[0], [0, 1], [1, 2]]);
    expect(rows("dilated(1, 2)", 4)).toEqual([[0, 2], [1, 3], [0, 2], [1, 3]]);
    expect(rows("~global_tokens(1)", 3)).toEqual([[], [1, 2], [1, 2]]);
    expect(rows("fixed(2)", 3)).toEqual([[1], [1], [1]]);
    expect(rows("causal().T", 3)).toEqual([[0, 1, 2], [1, 2], [2]]);
    expect(rows("ring(1)", 5).map((r) => r.length)).toEqual([3, 3, 3, 3, 3]);
  });
  it("bind as in Python: - before & before |", () => {
    expect(rows("window(0) | full() - window(0) & causal()", 2)).toEqual(rows("window(0) | ((full() - window(0)) & causal())", 2));
  });
  it("have few pairs at a million tokens", () => {
    expect(countPairs(parse("window(2)"), 1 << 16)).toBe(5 * 65536 - 6);
  });
});

describe("measures", () => {
  it("of the complete graph", () => {
    const m = measures(parse("full()"), 8);
    expect(m.gap).toBeCloseTo(8 / 7, 9);
    expect([m.pairs, m.layers, m.diameter, m.components]).toEqual([64, 1, 1, 1]);
  });
  it("of one that never reaches all", () => {
    expect(measures(parse("causal()"), 8).layers).toBe(Number.POSITIVE_INFINITY);
    expect(measures(parse("blocks(4)"), 8).components).toBe(2);
  });
});

describe("mistakes say where they are", () => {
  it.each(["", "windw(3)", "window(3", "window(3) |", "3", "window(3) window(1)", "window()", "strided(0)", "random_edges(2)", "window(3).nothing(1)", "constructor()", "window(-1)", "global_tokens(window(1))", "window(1); alert(1)", "~".repeat(500) + "full()"])("%s", (text) => {
    expect(() => rows(text, 4)).toThrow(BadPattern);
  });
});
