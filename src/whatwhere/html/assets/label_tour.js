// The tour of the labelling page.

/** @type {import("./tour.js").Stop[]} */
export const LABEL_STOPS = [
  {
    target: "chosen-panel",
    title: "Say what this is",
    text: "The picture whose label helps most is chosen. Type the name of its class and press Enter. Click it to see it large.",
  },
  {
    target: "tray-panel",
    title: "The next one is chosen",
    text: "Suggestions differ from each other and from all labelled pictures. From the second class on, you can type the digit of a class.",
  },
  {
    target: "all-panel",
    title: "All others follow",
    text: "Similar pictures are close to each other. The colour of a frame is the class; the frame is broken if the class is unsure. Drag around pictures to choose many.",
  },
  {
    target: "classes-panel",
    title: "Confirm many at once",
    text: "The magnifying glass next to a class shows its pictures, the least sure first. Take out what is wrong and confirm the rest.",
  },
  {
    target: "error-panel",
    title: "Stop when it is good enough",
    text: "From five labels on, the page estimates the share of wrong classes. Save the classifier for new pictures, or export the classes of these.",
  },
];
