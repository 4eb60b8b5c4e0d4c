// Small tools for the document. Text always goes in as text, never as markup.

/**
 * The element with this id, of this class.
 * @template {Element} T
 * @param {string} id
 * @param {{ new (...args: any[]): T }} kind
 * @returns {T}
 */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${kind.name} with the id ${id}`);
  return found;
}

/**
 * A new element.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [properties] `class`, `aria-…`, `data-…` are attributes, `on…` listeners, others properties
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class" || name === "role" || name.includes("-")) element.setAttribute(name, value);
    else /** @type {any} */ (element)[name] = value;
  }
  element.append(...children);
  return element;
}

/** @param {HTMLCanvasElement} canvas */
export function contextOf(canvas) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (!context) throw new Error("this browser cannot draw on a canvas");
  return context;
}

/** The value of a colour or size that the style sheet defines. @param {string} name */
export const styled = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A number for people: three figures. @param {number} value */
export function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(0);
  return size >= 10 ? value.toFixed(1) : size >= 0.1 ? value.toFixed(2) : value.toPrecision(3);
}

/**
 * Where a pointer is on an element, from 0 to 1.
 * @param {MouseEvent} event
 * @param {Element} element
 */
export function pointerOn(event, element) {
  const box = element.getBoundingClientRect();
  return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
}
