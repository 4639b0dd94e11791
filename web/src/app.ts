/** The page: its controls, and which view draws what. */

import { Attention } from "./attention";
import { DARK, LIGHT, type Theme } from "./colours";
import { el } from "./dom";
import { inspect, pairSentence, sentence } from "./inspector";
import { hopsFrom } from "./pattern/measures";
import type { Panel } from "./payload";
import { type Selection, type State, Store, VIEWS, type ViewName } from "./state";
import { drawGraph, tokenAt } from "./views/graph";
import { drawHeads, galleryHeight, headAt } from "./views/heads";
import { Lab } from "./views/lab";
import { type Camera, cellAt, clamped, drawMap, home, shareAt, zoomed } from "./views/map";

const NAMES: Record<ViewName, string> = { graph: "Graph", map: "Map", heads: "Heads", compare: "Compare", lab: "Pattern lab" };
const BEAT = 1100; // milliseconds of a hop

export class App {
  readonly store: Store;
  private readonly panels: Attention[];
  private readonly canvas: HTMLCanvasElement;
  private readonly second: HTMLCanvasElement;
  private readonly aside = el("aside", { "aria-label": "token, head, rule and plan" });
  private readonly status = el("p", { id: "status", role: "status", "aria-live": "polite" });
  private readonly bar = el("div", { class: "bar", role: "toolbar", "aria-label": "controls" });
  private readonly tabs = el("nav", { role: "tablist", "aria-label": "views" });
  private readonly stage = el("div", { class: "pictures" });
  private readonly lab: Lab;
  private camera: Camera = home();
  private cell: [number, number] | null = null;
  private timer = 0;
  private inspected = "";
  private barShown = "";

  constructor(root: HTMLElement, panels: Panel[]) {
    this.panels = panels.map((panel) => new Attention(panel));
    const first = this.panels[0];
    for (const one of this.panels) if (!one.header.tokens && one.n === first.n) one.header.tokens = first.header.tokens;
    const start = first.startingHead();
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const other: Selection = { panel: this.panels.length > 1 ? 1 : 0, layer: 0, head: this.panels.length > 1 || first.heads[0] < 2 ? 0 : 1 };
    this.store = new Store({
      view: "graph", panel: 0, ...start, threshold: first.startingThreshold(start.layer, start.head), token: null, hover: null, hop: null,
      metric: "entropy", other, pattern: first.patternText() ?? "window(2) | global_tokens(1)", tokens: 32, dark: scheme.matches,
    });
    if (first.n > 1024) this.store.now.view = "map";
    this.lab = new Lab(this.store);
    this.canvas = this.picture("picture");
    this.second = this.picture("second");
    for (const view of VIEWS) this.tabs.append(el("button", { role: "tab", id: `tab-${view}`, type: "button", click: () => this.open(view) }, NAMES[view]));
    const theme = el("button", { id: "theme", type: "button", title: "light or dark (t)", click: () => this.store.set({ dark: !this.now.dark }) }, "◐");
    const head = el("header", {}, el("h1", {}, el("bdi", {}, document.title)), this.tabs, theme);
    root.replaceChildren(head, this.bar, el("div", { class: "stage" }, this.stage, this.aside), el("footer", {}, this.status, this.help()));
    this.store.onChange(() => this.draw());
    scheme.addEventListener("change", () => this.store.set({ dark: scheme.matches }));
    addEventListener("resize", () => this.store.set({}));
    addEventListener("keydown", (event) => this.key(event));
    this.draw();
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  }

  private get now(): State {
    return this.store.now;
  }
  private get attention(): Attention {
    return this.panels[this.now.panel];
  }
  /** The least weight shown; a pattern is shown as it is. */
  private get least(): number {
    return this.attention.rule ? 0 : this.now.threshold;
  }
  private get theme(): Theme {
    return this.now.dark ? DARK : LIGHT;
  }

  private help(): HTMLElement {
    const keys = "1–5 views · arrows move · [ ] layer · , . head · + − 0 zoom · space hops · Esc clears · t theme";
    return el("details", {}, el("summary", {}, "keys"), el("p", {}, keys));
  }

  private picture(id: string): HTMLCanvasElement {
    const made = el("canvas", { id, tabindex: 0, role: "img" });
    made.addEventListener("pointermove", (event) => this.point(made, event));
    made.addEventListener("pointerleave", () => {
      this.cell = null;
      this.store.set({ hover: null });
    });
    made.addEventListener("click", (event) => this.choose(made, event));
    made.addEventListener("wheel", (event) => this.wheel(made, event), { passive: false });
    return made;
  }

  private open(view: ViewName): void {
    this.stop();
    this.store.set({ view, hover: null });
    this.cell = null;
    this.status.textContent = "";
  }

  private point(canvas: HTMLCanvasElement, event: PointerEvent): void {
    const [x, y] = [event.offsetX, event.offsetY];
    const { view } = this.now;
    if (view === "graph") this.store.set({ hover: tokenAt(canvas, x, y) });
    else if (view === "map" || view === "compare") {
      if (event.buttons === 1 && view === "map") return this.drag(event);
      this.cell = cellAt(canvas, x, y);
      this.store.set({ hover: this.cell ? this.cell[0] : null });
    } else if (view === "heads") {
      const found = headAt(canvas, this.attention, x, y);
      this.status.textContent = found ? this.headSentence(...found) : "";
    }
  }

  private drag(event: PointerEvent): void {
    const side = Math.min(this.canvas.clientWidth, this.canvas.clientHeight) * this.camera.zoom;
    this.camera = clamped({ ...this.camera, x: this.camera.x - event.movementX / side, y: this.camera.y - event.movementY / side });
    this.store.set({});
  }

  private choose(canvas: HTMLCanvasElement, event: MouseEvent): void {
    const { view } = this.now;
    if (view === "graph") this.pick(tokenAt(canvas, event.offsetX, event.offsetY));
    else if (view === "map") this.pick(cellAt(canvas, event.offsetX, event.offsetY)?.[0] ?? null);
    else if (view === "heads") {
      const found = headAt(canvas, this.attention, event.offsetX, event.offsetY);
      if (found) this.store.set({ layer: found[0], head: found[1] });
    }
  }

  private pick(token: number | null): void {
    this.stop();
    this.store.set({ token: token === this.now.token ? null : token });
  }

  private wheel(canvas: HTMLCanvasElement, event: WheelEvent): void {
    if (this.now.view !== "map") return;
    event.preventDefault();
    this.camera = zoomed(this.camera, event.deltaY < 0 ? 1.25 : 0.8, this.attention.n, ...shareAt(canvas, event.offsetX, event.offsetY));
    this.store.set({});
  }

  private headSentence(layer: number, head: number): string {
    const s = this.attention.summary(layer, head);
    return `layer ${layer}, head ${head}${s ? `: entropy ${s.entropy.toFixed(2)} nats, mean distance ${s.distance.toFixed(1)}, sink ${Math.round(100 * s.sink_share)}%` : ""}`;
  }

  private key(event: KeyboardEvent): void {
    const typing = event.target instanceof HTMLElement && /^(TEXTAREA|INPUT|SELECT)$/.test(event.target.tagName);
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const s = this.now;
    const count = this.attention.n;
    const move = (by: number): void => this.store.set({ token: s.token === null ? 0 : (s.token + by + count) % count, hover: null });
    const step = (field: "layer" | "head", by: number): void => {
      const most = field === "layer" ? this.attention.heads.length : this.attention.heads[s.layer];
      const value = Math.min(Math.max(s[field] + by, 0), most - 1);
      this.store.set(field === "layer" ? { layer: value, head: Math.min(s.head, this.attention.heads[value] - 1) } : { head: value });
    };
    const zoom = (by: number): void => {
      this.camera = by ? zoomed(this.camera, by, count) : home();
      this.store.set({});
    };
    const gallery = s.view === "heads";
    const onButton = event.target instanceof HTMLButtonElement;
    const actions: Record<string, () => void> = {
      ArrowRight: () => (gallery ? step("head", 1) : move(1)), ArrowLeft: () => (gallery ? step("head", -1) : move(-1)),
      ArrowDown: () => (gallery ? step("layer", 1) : move(1)), ArrowUp: () => (gallery ? step("layer", -1) : move(-1)),
      "[": () => step("layer", -1), "]": () => step("layer", 1), ",": () => step("head", -1), ".": () => step("head", 1),
      "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), "0": () => zoom(0),
      t: () => this.store.set({ dark: !s.dark }), Escape: () => { this.stop(); this.store.set({ token: null }); },
      ...(onButton ? {} : { " ": () => this.play() }),
      ...Object.fromEntries(VIEWS.map((view, k) => [String(k + 1), () => this.open(view)])),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  }

  /** Hops from the chosen token along the edges that are shown. */
  private hops(): Int32Array {
    const { layer, head, token } = this.now;
    const threshold = this.least;
    const next = (i: number): number[] => this.attention.row(layer, head, i).filter((e) => e.weight >= threshold && e.weight > 0).map((e) => e.key);
    return hopsFrom(token ?? 0, next, this.attention.n);
  }

  play(): void {
    if (this.timer) return this.stop();
    this.store.set({ view: "graph", token: this.now.token ?? 0, hop: 0, hover: null });
    this.timer = window.setInterval(() => this.hop(1), BEAT);
  }

  private hop(by: number): void {
    const most = Math.max(...this.hops());
    const next = Math.min(Math.max((this.now.hop ?? 0) + by, 0), most);
    if (this.timer && next === this.now.hop) {
      clearInterval(this.timer);
      this.timer = 0;
    }
    this.store.set({ hop: next, token: this.now.token ?? 0, hover: null });
  }

  private stop(): void {
    clearInterval(this.timer);
    this.timer = 0;
    this.store.set({ hop: null });
  }

  private draw(): void {
    const s = this.now;
    document.documentElement.dataset.theme = s.dark ? "dark" : "light";
    for (const view of VIEWS) this.tabs.querySelector(`#tab-${view}`)?.setAttribute("aria-selected", String(view === s.view));
    this.aside.hidden = s.view === "lab"; // before pictures are drawn, which take its place
    this.drawBar();
    this.mount();
    const a = this.attention;
    const lit = this.store.lit;
    const base = { attention: a, layer: s.layer, head: s.head, threshold: this.least, lit };
    if (s.view === "graph") drawGraph(this.canvas, this.theme, { ...base, hops: s.hop === null ? null : this.hops(), step: s.hop ?? 0 });
    else if (s.view === "map") drawMap(this.canvas, this.theme, { ...base, cell: this.cell, camera: this.camera });
    else if (s.view === "heads") drawHeads(this.canvas, this.theme, a, s);
    else if (s.view === "compare") this.compare(base);
    else this.lab.draw(this.theme);
    this.canvas.setAttribute("aria-label", `${NAMES[s.view]} of layer ${s.layer}, head ${s.head}`);
    this.say(lit);
  }

  private compare(base: { attention: Attention; layer: number; head: number; threshold: number; lit: number | null }): void {
    const o = this.now.other;
    const b = this.panels[o.panel];
    const within = (n: number): [number, number] | null => (this.cell && Math.max(...this.cell) < n ? this.cell : null);
    const named = (p: Attention, layer: number, head: number): string => p.header.title + (p.rule ? "" : `, layer ${layer}, head ${head}`);
    drawMap(this.canvas, this.theme, { ...base, cell: within(base.attention.n), camera: home(), title: named(base.attention, base.layer, base.head) });
    const lit = base.lit !== null && base.lit < b.n ? base.lit : null;
    drawMap(this.second, this.theme, { ...base, attention: b, layer: o.layer, head: o.head, lit, cell: within(b.n), camera: home(), title: named(b, o.layer, o.head) });
  }

  private say(lit: number | null): void {
    const s = this.now;
    const a = this.attention;
    const wanted = [s.panel, s.layer, s.head, lit, s.threshold].join();
    if (!this.aside.hidden && wanted !== this.inspected) {
      this.inspected = wanted;
      inspect(this.aside, a, s.layer, s.head, lit, this.least);
    }
    if (s.view === "heads") return;
    if (s.hop !== null) this.status.textContent = this.hopSentence();
    else if ((s.view === "map" || s.view === "compare") && this.cell) {
      const o = s.other;
      const pair = pairSentence(a, s.layer, s.head, this.cell);
      const b = this.panels[o.panel];
      const beside = s.view === "compare" && Math.max(...this.cell) < b.n ? ` | ${pairSentence(b, o.layer, o.head, this.cell)}` : "";
      this.status.textContent = pair + beside;
    } else this.status.textContent = lit === null || s.view === "lab" ? "" : sentence(a, s.layer, s.head, lit, this.least);
  }

  private hopSentence(): string {
    const hops = this.hops();
    const step = this.now.hop ?? 0;
    const reached = hops.reduce((sum, h) => sum + (h >= 0 && h <= step ? 1 : 0), 0);
    const new_ = hops.reduce((sum, h) => sum + (h === step ? 1 : 0), 0);
    return `hop ${step}: ${new_} new, ${reached} of ${this.attention.n} tokens reached`;
  }

  private mount(): void {
    const { view } = this.now;
    const wanted: Node[] = view === "lab" ? [this.lab.root] : view === "compare" ? [this.canvas, this.second] : [this.canvas];
    if (wanted.length !== this.stage.childNodes.length || wanted.some((node, k) => this.stage.childNodes[k] !== node)) this.stage.replaceChildren(...wanted);
    this.stage.className = `pictures ${view}`;
    this.canvas.style.height = view === "heads" ? `${galleryHeight(this.stage.clientWidth, this.attention)}px` : "";
  }

  private drawBar(): void {
    const s = this.now;
    const state = JSON.stringify([s.view, s.panel, s.layer, s.head, s.other, s.metric, s.hop, this.timer > 0]);
    const slider = this.bar.querySelector<HTMLInputElement>("#threshold");
    if (slider) (this.bar.querySelector("output") as HTMLOutputElement).value = this.chosen();
    if (state === this.barShown) return;
    this.barShown = state;
    const focused = document.activeElement?.id;
    this.bar.hidden = s.view === "lab";
    this.bar.replaceChildren(...this.selects(s, "", (change) => this.store.set(change)), ...this.threshold(), ...this.tools());
    if (focused) document.getElementById(focused)?.focus();
  }

  private selects(s: Selection, suffix: string, change: (c: Partial<Selection>) => void): Node[] {
    const a = this.panels[s.panel];
    const box = (name: "panel" | "layer" | "head", label: string, values: string[]): Node[] => {
      const made = el("select", { id: name + suffix, change: () => change(next(name, Number(made.value))) });
      values.forEach((value, k) => made.append(el("option", { value: k, selected: k === s[name] }, value)));
      return [el("label", { for: name + suffix }, label), made];
    };
    const next = (name: string, value: number): Partial<Selection> => {
      const panel = this.panels[name === "panel" ? value : s.panel];
      const layer = Math.min(name === "layer" ? value : s.layer, panel.heads.length - 1);
      return { panel: this.panels.indexOf(panel), layer, head: Math.min(name === "head" ? value : s.head, panel.heads[layer] - 1) };
    };
    const several = this.panels.length > 1 ? box("panel", "model", this.panels.map((p) => p.header.title.slice(0, 40))) : [];
    if (a.rule) return several;
    return [...several, ...box("layer", "layer", a.heads.map((_, k) => String(k))), ...box("head", "head", Array.from({ length: a.heads[s.layer] }, (_, k) => String(k)))];
  }

  private threshold(): Node[] {
    if (this.now.view === "heads" || this.attention.rule) return [];
    const range = el("input", { id: "threshold", type: "range", min: 0, max: 1, step: 0.005, value: Math.sqrt(this.now.threshold), input: () => this.store.set({ threshold: Number(range.value) ** 2 }) });
    return [el("label", { for: "threshold" }, "threshold"), range, el("output", { for: "threshold" }, this.chosen())];
  }

  /** The threshold, and how many edges are above it. */
  private chosen(): string {
    const { layer, head, threshold } = this.now;
    let count = 0;
    this.attention.forEach(layer, head, (_i, _j, weight) => (count += weight >= threshold && weight > 0 ? 1 : 0));
    return `${threshold.toFixed(3)}, ${count.toLocaleString("en")} edges`;
  }

  private tools(): Node[] {
    const s = this.now;
    const group = (...parts: Node[]): Node => el("span", { class: "group" }, ...parts);
    const button = (id: string, text: string, title: string, click: () => void): Node => el("button", { id, type: "button", title, "aria-label": title, click }, text);
    if (s.view === "graph" && this.attention.n <= 4096)
      return [group(el("label", {}, "hops"), button("hop-back", "◀", "a hop back", () => this.hop(-1)), button("hop-play", this.timer ? "⏸" : "▶ play", "play hops", () => this.play()), button("hop-next", "▶", "a hop further", () => this.hop(1)), s.hop === null ? el("span", {}) : button("hop-stop", "✕", "no hops", () => this.stop()))];
    if (s.view === "map") {
      const zoom = (by: number): void => {
        this.camera = by ? zoomed(this.camera, by, this.attention.n) : home();
        this.store.set({});
      };
      return [group(button("zoom-in", "+", "zoom in", () => zoom(1.5)), button("zoom-out", "−", "zoom out", () => zoom(1 / 1.5)), button("zoom-home", "⤢", "all of it", () => zoom(0)))];
    }
    if (s.view === "heads") {
      const metric = el("select", { id: "metric", change: () => this.store.set({ metric: metric.value as State["metric"] }) });
      for (const [value, text] of [["entropy", "entropy (nats)"], ["distance", "mean distance"], ["sink_share", "share of the sink"]]) metric.append(el("option", { value, selected: value === s.metric }, text));
      return [el("label", { for: "metric" }, "number"), metric];
    }
    if (s.view === "compare") return [group(el("span", { class: "quiet" }, "on the right:"), ...this.selects(s.other, "-right", (c) => this.store.set({ other: { ...s.other, ...c } })))];
    return [];
  }
}
