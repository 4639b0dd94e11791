/** The data of a page: one zlib stream in base64. Its layout is that of viewer/payload.py. */

export interface Summary {
  layer: number;
  head: number;
  entropy: number;
  distance: number;
  peak: number;
  own: number;
  previous: number;
  following: number;
  sink: number;
  sink_share: number;
}
export interface Layer {
  name: string;
  heads: number;
  rule: string;
  plan: string;
  pairs?: number;
  pattern?: string;
}
export interface Header {
  kind: "model" | "pattern";
  title: string;
  n: number;
  tokens?: string[];
  layers: Layer[];
  summary?: Summary[];
  tiles?: { g: number; size: number; most: number[] };
  bits?: 8 | 16;
  complete?: boolean;
  least?: number;
  pattern?: string;
  arrays: Record<string, [number, number]>;
}
export interface Panel {
  header: Header;
  bytes(name: string): Uint8Array;
  shorts(name: string): Uint16Array;
}

async function inflated(data: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export async function unpack(text: string): Promise<Panel[]> {
  const raw = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const data = await inflated(raw);
  const length = new DataView(data.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length))) as { panels: Header[] };
  const body = data.subarray(4 + length);
  return header.panels.map((one) => {
    const bytes = (name: string): Uint8Array => {
      const [at, count] = one.arrays[name];
      if (at + count > body.length) throw new RangeError("an array is cut off");
      return body.subarray(at, at + count);
    };
    const shorts = (name: string): Uint16Array => {
      const planes = bytes(name);
      const half = planes.length / 2;
      const out = new Uint16Array(half);
      for (let k = 0; k < half; k++) out[k] = planes[k] | (planes[k + half] << 8);
      return out;
    };
    return { header: one, bytes, shorts };
  });
}
