// The tour of the explorer.

/** @typedef {import("./session.js").Session} Session */

/** The stops for the model that the page shows. @param {Session} session @returns {import("./tour.js").Stop[]} */
export function explorerStops(session) {
  const selectFirst = () => {
    session.showStep(null);
    const [first] = session.active(session.top);
    if (first) session.set({ layer: session.top, selected: first.j, feature: first.map }, "selection", "view");
  };
  const chooseOther = () => {
    if (!session.state.other) session.set({ other: { example: Math.min(17, session.examples.count - 1) } }, "other");
  };
  return [
    {
      target: "input-panel",
      title: "Give it an image",
      text: session.isStrokes
        ? "Draw here with mouse, pen or finger, or take one of the examples. Nothing leaves this page: the model runs in your browser."
        : "Take one of the examples, or a picture of your own: choose, drop or paste a file. Nothing leaves this page: the model runs in your browser.",
    },
    {
      target: "inference-panel",
      title: "Watch inference explain it",
      text: "Inference starts with no features at all and lowers the cost step by step. Orange is what the explanation does not yet reproduce, blue is what its features cost. Drag over the curve to go back in time.",
      act: () => session.showStep(3),
    },
    {
      target: "code-panel",
      title: "What and where",
      text: "The image is now a list of features. Each has the colour and the number of its feature map (what) and an ellipse that says at which place of its region it is drawn (where). One is selected: drag its ellipse or pull its rim, scroll to make it stronger, press Delete to take it away.",
      act: selectFirst,
    },
    {
      target: "feature-panel",
      title: "Meet a feature map",
      text: "This is what the map of the selected feature has learned: its filters, what it draws alone, and 16 of its activations in other images, drawn at random.",
    },
    {
      target: "pair-panel",
      title: "Exchange positions",
      text: "This panel draws the features of A at the positions of B. Move the slider to go from one to the other. Copy the link to show somebody what you see.",
      act: chooseOther,
    },
  ];
}
