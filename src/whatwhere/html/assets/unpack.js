// What the page carries: the model as JSON with base64 arrays, and arrays that are compressed with gzip.

/** @typedef {import("./engine.js").Model} Model */

/**
 * @typedef {object} PackedLayer
 * @property {number} maps
 * @property {number} filterSize
 * @property {"gaussian" | "max" | "sum"} kind
 * @property {number} poolSize
 * @property {number} stride
 * @property {string} filters base64 of float32
 * @property {string} connected base64 of uint8
 */

/** @typedef {{ channels: number, nonnegative: boolean, input: import("./stage.js").Input, layers: PackedLayer[] }} PackedModel */

/** @param {string} text */
export function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** @param {Uint8Array} bytes */
export function toBase64(bytes) {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/**
 * @param {PackedModel} packed
 * @returns {Model}
 */
export function unpackModel(packed) {
  const layers = packed.layers.map((layer) => ({
    ...layer,
    filters: new Float32Array(fromBase64(layer.filters).buffer),
    connected: fromBase64(layer.connected),
  }));
  return { channels: packed.channels, nonnegative: packed.nonnegative, input: packed.input, layers };
}

/**
 * The bytes of a base64 gzip member.
 * @param {string} text
 */
export async function inflate(text) {
  const stream = new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
