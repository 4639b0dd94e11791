/** The text form of patterns, as Python's `repr` prints it: calls, | & - ~, .T and methods. */

import * as p from "./patterns";
import { BadPattern, type Pattern } from "./patterns";

type Value = Pattern | number | number[];
type Named = Record<string, Value>;

const isPattern = (x: Value): x is Pattern => typeof x === "object" && !Array.isArray(x);

interface Signature {
  names: string[];
  least: number;
  build: (get: (name: string, otherwise?: number) => number, raw: (name: string) => Value | undefined) => Pattern;
}

const seeded = (name: string, seed: number): bigint => {
  if (Number.isNaN(seed)) throw new BadPattern(`${name} needs a seed: ${name}(..., seed=0)`);
  return BigInt(seed);
};
const tokensOf = (raw: Value | undefined): number | number[] => {
  if (raw === undefined || isPattern(raw)) throw new BadPattern("tokens are a number or a list of positions");
  return raw;
};

export const PATTERNS: Record<string, Signature> = {
  full: { names: [], least: 0, build: () => p.full() },
  causal: { names: [], least: 0, build: () => p.causal() },
  window: { names: ["radius"], least: 0, build: (g) => p.window(g("radius")) },
  dilated: { names: ["radius", "step"], least: 0, build: (g) => p.dilated(g("radius"), positive(g, "step")) },
  strided: { names: ["step"], least: 1, build: (g) => p.strided(positive(g, "step")) },
  blocks: { names: ["size"], least: 1, build: (g) => p.blocks(positive(g, "size")) },
  prefix: { names: ["length"], least: 0, build: (g) => p.prefix(g("length")) },
  ring: { names: ["radius"], least: 0, build: (g) => p.ring(g("radius")) },
  global_tokens: { names: ["tokens"], least: 0, build: (_, raw) => p.globalTokens(tokensOf(raw("tokens"))) },
  fixed: {
    names: ["step", "width"],
    least: 1,
    build: (g) => {
      const [step, width] = [positive(g, "step"), g("width", 1)];
      if (width < 1 || width > step) throw new BadPattern("`width` must be from 1 to `step`");
      return p.fixed(step, width);
    },
  },
  longformer: {
    names: ["radius", "tokens", "dilation"],
    least: 0,
    build: (g, raw) => p.either(p.dilated(g("radius"), g("dilation", 1)), p.globalTokens(tokensOf(raw("tokens") ?? 1))),
  },
  random_edges: { names: ["keys", "seed"], least: 0, build: (g) => p.randomEdges(g("keys"), seeded("random_edges", g("seed", Number.NaN))) },
  bigbird: {
    names: ["block", "random", "window", "global_first", "global_last", "seed"],
    least: 0,
    build: (g) => p.bigbird(g("block", 64), g("random", 3), g("window", 3), g("global_first", 1), g("global_last", 1), BigInt(g("seed", 0))),
  },
  extra_global_tokens: {
    names: ["tokens", "pattern"],
    least: 0,
    build: (g, raw) => {
      const [k, inner] = [g("tokens"), raw("pattern")];
      if (inner === undefined || !isPattern(inner)) throw new BadPattern("the second argument is a pattern");
      return p.either(p.globalTokens(k), p.shifted(inner, k, k));
    },
  },
};

/** What else a text may name. */
export const METHODS = ["T", "shift", "rows", "power", "hops", "compose"];

function positive(get: (name: string) => number, name: string): number {
  const value = get(name);
  if (value < 1) throw new BadPattern(`\`${name}\` must be at least 1, got ${value}`);
  return value;
}

const TOKEN = /\s*(?:(\d+)|([A-Za-z_]\w*)|([|&~\-().,=[\]]))/y;

class Reader {
  private readonly tokens: { text: string; at: number }[] = [];
  private place = 0;
  private depth = 0;

  constructor(text: string) {
    TOKEN.lastIndex = 0;
    const whole = text.trimEnd();
    if (whole.length > 10_000) throw new BadPattern("the text is too long");
    while (TOKEN.lastIndex < whole.length) {
      const at = TOKEN.lastIndex;
      const found = TOKEN.exec(whole);
      if (!found) throw new BadPattern(`unexpected ${JSON.stringify(whole.slice(at).trim()[0] ?? "")}`, at);
      this.tokens.push({ text: found[1] ?? found[2] ?? found[3], at: TOKEN.lastIndex - (found[1] ?? found[2] ?? found[3]).length });
    }
  }

  all(): Pattern {
    const found = this.pattern(this.either());
    if (this.place < this.tokens.length) throw this.error(`unexpected \`${this.peek()}\``);
    return found;
  }

  private peek(): string {
    return this.tokens[this.place]?.text ?? "";
  }
  private error(message: string): BadPattern {
    const last = this.tokens[this.tokens.length - 1];
    return new BadPattern(message, this.tokens[this.place]?.at ?? (last ? last.at + last.text.length : 0));
  }
  private take(text: string): boolean {
    if (this.peek() !== text) return false;
    this.place++;
    return true;
  }
  private expect(text: string): void {
    if (!this.take(text)) throw this.error(this.peek() ? `expected \`${text}\`, got \`${this.peek()}\`` : `expected \`${text}\` at the end`);
  }
  private pattern(value: Value): Pattern {
    if (!isPattern(value)) throw this.error("this is a number, not a pattern: write one such as window(3)");
    return value;
  }

  private chain(sign: string, next: () => Value, join: (a: Pattern, b: Pattern) => Pattern): Value {
    let out = next();
    while (this.peek() === sign) {
      const left = this.pattern(out);
      this.place++;
      out = join(left, this.pattern(next()));
    }
    return out;
  }
  private either(): Value {
    if (++this.depth > 200) throw this.error("nested too deep");
    const found = this.chain("|", () => this.both(), p.either);
    this.depth--;
    return found;
  }
  private both(): Value {
    return this.chain("&", () => this.minus(), p.both);
  }
  private minus(): Value {
    return this.chain("-", () => this.unary(), p.without);
  }
  private unary(): Value {
    if (++this.depth > 200) throw this.error("nested too deep");
    const found = this.take("~") ? p.complement(this.pattern(this.unary())) : this.negative();
    this.depth--;
    return found;
  }
  private negative(): Value {
    if (!this.take("-")) return this.postfix();
    const value = this.postfix();
    if (typeof value !== "number") throw this.error("a minus before a pattern needs a pattern before it");
    return -value;
  }

  private postfix(): Value {
    let out = this.primary();
    while (this.take(".")) {
      const inner = this.pattern(out);
      const name = this.peek();
      this.place++;
      if (name === "T") out = p.transpose(inner);
      else out = this.method(inner, name);
    }
    return out;
  }

  private method(inner: Pattern, name: string): Pattern {
    const { args, named } = this.args();
    const number = (k: number, key: string): number => {
      const value = args[k] ?? named[key];
      if (typeof value !== "number") throw this.error(`.${name} needs a number`);
      return value;
    };
    if (name === "shift") return p.shifted(inner, number(0, "rows"), args.length > 1 || "keys" in named ? number(1, "keys") : number(0, "rows"));
    if (name === "power") {
      const hops = number(0, "hops");
      if (hops < 1 || hops > 64) throw this.error("power takes from 1 to 64 hops here");
      return p.power(inner, hops);
    }
    if (name === "compose") return p.compose(inner, this.pattern(args[0] ?? named.other ?? 0));
    throw this.error(`this page knows .T, .shift, .power and .compose, not .${name}`);
  }

  private primary(): Value {
    const text = this.peek();
    if (/^\d/.test(text)) {
      this.place++;
      return Number(text);
    }
    if (this.take("(") || this.take("[")) return this.bracket(text);
    if (/^[A-Za-z_]/.test(text)) return this.call(text);
    throw this.error(text ? `unexpected \`${text}\`` : "write a pattern, such as window(3) | global_tokens(1)");
  }

  private bracket(open: string): Value {
    const close = open === "(" ? ")" : "]";
    const items: Value[] = [];
    let comma = false;
    while (this.peek() !== close) {
      items.push(this.either());
      if (!this.take(",")) break;
      comma = true;
    }
    this.expect(close);
    if (open === "(" && !comma && items.length === 1) return items[0];
    return items.map((item) => {
      if (typeof item !== "number") throw this.error("a list holds positions");
      return item;
    });
  }

  private args(): { args: Value[]; named: Named } {
    const args: Value[] = [];
    const named: Named = {};
    this.expect("(");
    while (this.peek() !== ")") {
      const name = this.peek();
      if (this.tokens[this.place + 1]?.text === "=") {
        this.place += 2;
        named[name] = this.either();
      } else args.push(this.either());
      if (!this.take(",")) break;
    }
    this.expect(")");
    return { args, named };
  }

  private call(name: string): Pattern {
    const known = Object.hasOwn(PATTERNS, name) ? PATTERNS[name] : undefined;
    if (!known) throw this.error(`this page has no pattern \`${name}\`; it knows ${Object.keys(PATTERNS).join(", ")}`);
    const start = this.place++;
    const { args, named } = this.peek() === "(" ? this.args() : { args: [], named: {} };
    const unknown = Object.keys(named).find((key) => !known.names.includes(key));
    if (args.length > known.names.length || unknown) {
      this.place = start;
      throw this.error(`${name} takes ${known.names.join(", ") || "no arguments"}`);
    }
    const raw = (key: string): Value | undefined => (Object.hasOwn(named, key) ? named[key] : args[known.names.indexOf(key)]);
    const get = (key: string, otherwise?: number): number => {
      const value = raw(key) ?? otherwise;
      if (typeof value !== "number" || (value < 0 && key !== "seed")) {
        this.place = start;
        throw this.error(`${name} needs \`${key}\`, a number from 0`);
      }
      return value;
    };
    return known.build(get, raw);
  }
}

export function parse(text: string): Pattern {
  return new Reader(text).all();
}
