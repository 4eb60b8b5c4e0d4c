// The blind check: 30 pictures drawn at random are named without their predicted class, which measures the error.
import { byId } from "./dom.js";
import { ask, counted, shared, tell } from "./label_state.js";

/** The picture that is asked for, or null when the check is over. */
export function askedRow() {
  const { check } = shared;
  return check?.rows.find((row) => check.answers[row] === undefined) ?? null;
}

/** Show how far the check is, and hide what the program thinks. */
export function showCheck() {
  const { check, measured } = shared;
  document.body.classList.toggle("checking", check !== null);
  const begin = byId("check-begin", HTMLButtonElement);
  begin.hidden = check !== null;
  begin.disabled = shared.classes.length < 3;
  byId("check-end", HTMLButtonElement).hidden = check === null;
  const words = byId("check-words", HTMLElement);
  if (check === null) {
    words.textContent = measured || "To measure the error, name 30 pictures drawn at random. You do not see their predicted class.";
    return;
  }
  const done = Object.keys(check.answers).length;
  words.textContent = `Check: picture ${Math.min(done + 1, check.rows.length)} of ${check.rows.length}. What is it?`;
}

/**
 * Answer the picture that is asked for.
 * @param {number} row
 * @param {string | null} name null takes the answer back
 */
export function answer(row, name) {
  const { check } = shared;
  if (check === null) return;
  if (name === null) delete check.answers[row];
  else check.answers[row] = name;
}

/** The picture that was answered last, or null. */
export function lastAnswered() {
  const { check } = shared;
  const answered = check?.rows.filter((row) => check.answers[row] !== undefined) ?? [];
  return answered[answered.length - 1] ?? null;
}

/**
 * @param {(work: () => Promise<void>) => Promise<void>} afterwards
 * @param {(state: any) => void} take what the server says
 */
export function checkPanel(afterwards, take) {
  /** @param {boolean} begin */
  const act = (begin) =>
    afterwards(async () => {
      const state = await ask("check", { begin });
      if (state.failed) return;
      take(state);
      tell(begin ? `Name ${counted(state.check.rows.length, "picture")}. u takes the last answer back.` : state.measured);
    });
  byId("check-begin", HTMLElement).addEventListener("click", () => void act(true));
  byId("check-end", HTMLElement).addEventListener("click", () => void act(false));
}
