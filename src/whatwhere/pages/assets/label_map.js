// The map of all pictures: small pictures in the colours of their classes, a lasso, arrow keys.
import { byId, contextOf, pointerOn, styled } from "./dom.js";
import { css } from "./pictures.js";

/**
 * Set up the map.
 * @param {import("./label.js").Shared} shared
 * @param {(rows: number[], add?: boolean) => void} choose
 * @returns a function that draws it again
 */
export function mapPanel(shared, choose) {
  const canvas = byId("map", HTMLCanvasElement);
  const context = contextOf(canvas);
  const margin = 16;
  /** @type {number[][]} */ let lasso = [];
  /** @type {() => void} */ let again = () => {};
  const at = (/** @type {number} */ row) => [margin + shared.places[row][0] * (canvas.width - 2 * margin), margin + shared.places[row][1] * (canvas.height - 2 * margin)];
  const side = () => Math.max(9, Math.min(30, 700 / Math.sqrt(shared.names.length + 1)));

  /** @param {number} x @param {number} y */
  function nearest(x, y) {
    let [best, least] = [-1, Infinity];
    shared.names.forEach((_, row) => {
      const [px, py] = at(row);
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) [best, least] = [row, distance];
    });
    return least < 40 ** 2 ? best : -1;
  }

  const point = (/** @type {MouseEvent} */ event) => {
    const { x, y } = pointerOn(event, canvas);
    return [x * canvas.width, y * canvas.height];
  };
  canvas.addEventListener("pointerdown", (event) => {
    lasso = [point(event)];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (lasso.length === 0) return;
    lasso.push(point(event));
    again();
  });
  canvas.addEventListener("pointerup", (event) => {
    const drawn = lasso;
    lasso = [];
    if (drawn.length === 0) return;
    const extent = Math.max(...drawn.map(([x, y]) => Math.hypot(x - drawn[0][0], y - drawn[0][1])));
    const row = nearest(drawn[0][0], drawn[0][1]);
    if (extent > 8) choose(shared.names.map((_, n) => n).filter((n) => isInside(at(n), drawn)), event.shiftKey);
    else choose(row < 0 ? [] : [row], event.shiftKey || event.ctrlKey);
  });
  canvas.addEventListener("keydown", (event) => {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!direction) return;
    event.preventDefault();
    const [x, y] = shared.current >= 0 ? at(shared.current) : [canvas.width / 2, canvas.height / 2];
    let [best, least] = [-1, Infinity];
    shared.names.forEach((_, row) => {
      const [dx, dy] = [at(row)[0] - x, at(row)[1] - y];
      const ahead = dx * direction[0] + dy * direction[1];
      const cost = ahead + 3 * Math.abs(dx * direction[1] + dy * direction[0]);
      if (row !== shared.current && ahead > 0.5 && cost < least) [best, least] = [row, cost];
    });
    if (best >= 0) choose([best], event.shiftKey);
  });

  return (/** @type {(name: string) => number[]} */ hueOf, /** @type {any} */ drawSmall, /** @type {Set<number>} */ shown) => {
    again = () => {
      context.clearRect(0, 0, canvas.width, canvas.height);
      const size = side();
      const hues = shared.classes.map(hueOf);
      shared.names.forEach((_, row) => {
        const [x, y] = at(row);
        context.globalAlpha = shown.has(row) ? 1 : 0.12;
        drawSmall(context, row, x - size / 2, y - size / 2, size);
        if (shared.best[row] >= 0) {
          const sure = (shared.certainty[row] / 100) ** 2;
          context.fillStyle = css(hues[shared.best[row]], 0.1 + 0.5 * sure);
          context.fillRect(x - size / 2, y - size / 2, size, size);
        }
        context.globalAlpha = 1;
      });
      context.lineWidth = 2;
      for (const row of Object.keys(shared.said).map(Number)) frame(context, at(row), size, styled("--text"));
      for (const row of shared.tray) frame(context, at(row), size + 2, styled("--missing"));
      for (const row of shared.chosen) frame(context, at(row), size + 5, styled("--accent"));
      if (lasso.length > 1) {
        context.strokeStyle = styled("--accent");
        context.beginPath();
        for (const [x, y] of lasso) context.lineTo(x, y);
        context.stroke();
      }
    };
    again();
  };
}

/** @param {CanvasRenderingContext2D} context @param {number[]} place @param {number} size @param {string} colour */
function frame(context, [x, y], size, colour) {
  context.strokeStyle = colour;
  context.strokeRect(x - size / 2, y - size / 2, size, size);
}

/** Whether a point lies inside a closed line. @param {number[]} point @param {number[][]} line */
function isInside([x, y], line) {
  let inside = false;
  line.forEach(([ax, ay], n) => {
    const [bx, by] = line[(n + 1) % line.length];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  });
  return inside;
}
