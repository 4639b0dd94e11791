/** What the page shows now, and who wants to know when it changes. */

export const VIEWS = ["graph", "map", "heads", "compare", "lab"] as const;
export type ViewName = (typeof VIEWS)[number];

export interface Selection {
  panel: number;
  layer: number;
  head: number;
}
export interface State extends Selection {
  view: ViewName;
  threshold: number;
  token: number | null; // chosen by click or key
  hover: number | null; // under the pointer
  hop: number | null; // steps of hops shown, null when not playing
  metric: "entropy" | "distance" | "sink_share";
  other: Selection;
  pattern: string;
  tokens: number; // of the lab
  dark: boolean;
}

export class Store {
  private readonly listeners: (() => void)[] = [];
  private waiting = false;

  constructor(readonly now: State) {}

  set(change: Partial<State>): void {
    Object.assign(this.now, change);
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      for (const listener of this.listeners) listener();
    });
  }

  onChange(listener: () => void): void {
    this.listeners.push(listener);
  }

  get lit(): number | null {
    return this.now.hover ?? this.now.token;
  }
}
