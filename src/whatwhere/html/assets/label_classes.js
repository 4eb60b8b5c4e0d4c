// The classes as buttons, and the field in which the chosen pictures get a name.
import { byId, make } from "./dom.js";
import { Clicks } from "./label_clicks.js";
import { colourOf, markOf } from "./label_colours.js";
import { nearDouble } from "./label_names.js";
import { counted, keyOf, shared, usedClasses } from "./label_state.js";

const classClicks = new Clicks();

/** Call a function at a click on a class that is not the second of two. @param {() => void} action */
export const onClick = (action) => (/** @type {MouseEvent} */ event) => {
  if (classClicks.isAlone(event)) action();
};

/**
 * @typedef {object} ClassActions
 * @property {(name: string) => void} give the chosen pictures this class, or arm it if none is chosen
 * @property {(name: string) => void} look through the members of a class
 * @property {(name: string) => void} rename a class
 */

/** @param {ClassActions} actions */
export function showClasses(actions) {
  const members = shared.classes.map(() => 0);
  const said = shared.classes.map(() => 0);
  for (const best of shared.best) if (best >= 0) members[best] += 1;
  for (const value of Object.values(shared.said)) if (typeof value === "number") said[value] += 1;
  const none = shared.page.noneOfThese;
  const names = usedClasses().filter((name) => name !== none);
  const rows = [...names, none].map((name) => {
    const number = shared.classes.indexOf(name);
    return classRow(name, said[number] ?? 0, members[number] ?? 0, actions);
  });
  byId("classes", HTMLElement).replaceChildren(...rows);
  const armed = byId("armed", HTMLElement);
  armed.textContent = shared.armed === null ? "" : `Every picture that you click gets the class ${shared.armed}. Press Esc to stop.`;
}

/**
 * A class: what it is called, how many labels and members it has, and a button to look through them.
 * @param {string} name
 * @param {number} said
 * @param {number} members
 * @param {ClassActions} actions
 */
function classRow(name, said, members, { give, look, rename }) {
  const words = `${name}: ${counted(said, "label")}, ${counted(members, "picture")}`;
  const button = make(
    "button",
    { class: "class", "aria-pressed": String(shared.armed === name), title: `${words}${keyWords(name)}`, onclick: onClick(() => give(name)) },
    make("span", { class: "mark", "aria-hidden": "true" }, markOf(name)),
    make("span", { class: "class-name" }, name),
    make("span", { class: "hidden" }, `, ${counted(said, "label")}, ${counted(members, "picture")}`),
    make("small", { "aria-hidden": "true" }, `${said} / ${members}`),
    make("kbd", { "aria-hidden": "true" }, keyOf(name)),
  );
  button.style.setProperty("--hue", colourOf(name));
  button.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "F2") return;
    event.preventDefault();
    rename(name);
  });
  const isNone = name === shared.page.noneOfThese;
  const row = make("div", { class: isNone ? "class-row none-row" : "class-row" }, button);
  if (said > 0 && !isNone) {
    const title = `Rename ${name}, choose its colour, join it with another class, or remove its labels (F2)`;
    row.append(make("button", { class: "look", "aria-label": title, title, onclick: () => rename(name) }, "✎"));
  }
  if (members > 0) {
    const title = `Look through the pictures of ${name}, the least sure first`;
    row.append(make("button", { class: "look", "aria-label": title, title, onclick: () => look(name) }, "⌕"));
  }
  return row;
}

/** The key of a class, for its tooltip. @param {string} name */
function keyWords(name) {
  const key = keyOf(name);
  return key === "" ? "" : `; key ${key}`;
}

/** The class that starts with what is typed, if there is only one. @param {string} typed */
export function completionOf(typed) {
  if (typed === "") return null;
  const small = typed.toLowerCase();
  const found = usedClasses().filter((name) => name.toLowerCase().startsWith(small) && name !== typed);
  return found.length === 1 ? found[0] : null;
}

/** @param {(name: string) => void} give */
export function nameField(give) {
  const input = byId("class-name", HTMLInputElement);
  const hint = byId("completion", HTMLElement);
  let asked = ""; // the name about which the page has asked already
  const showCompletion = () => {
    const name = completionOf(input.value.trim());
    hint.textContent = name === null ? "" : `Tab completes: ${name}`;
  };
  input.addEventListener("input", showCompletion);
  input.addEventListener("keydown", (event) => {
    const typed = input.value.trim();
    const name = completionOf(typed) ?? (asked === typed ? nearDouble(typed, usedClasses()) : null);
    if (event.key !== "Tab" || event.shiftKey || name === null) return;
    event.preventDefault();
    input.value = name;
    showCompletion();
  });
  byId("new-class", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    const name = input.value.trim();
    const near = nearDouble(name, usedClasses());
    if (near !== null && asked !== name) {
      asked = name;
      hint.textContent = `Did you mean ${near}? Tab takes it, Enter keeps “${name}”.`;
      return;
    }
    asked = "";
    leaveField();
    if (name !== "") give(name);
  });
}

/** Start a name. @param {string} text */
export function enterField(text) {
  const input = byId("class-name", HTMLInputElement);
  input.value = text;
  input.focus();
  input.dispatchEvent(new Event("input"));
}

/** Leave the field; what was typed is forgotten. */
export function leaveField() {
  const input = byId("class-name", HTMLInputElement);
  input.value = "";
  input.dispatchEvent(new Event("input"));
  input.blur();
}
