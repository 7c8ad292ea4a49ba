// The description of the HTTP API, drawn by Swagger UI, light or dark as the other pages are.

const place = document.getElementById("swagger");
const dark = matchMedia("(prefers-color-scheme: dark)");

function follow() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

follow();
dark.addEventListener("change", follow);
SwaggerUIBundle({
  url: place.dataset.source,
  domNode: place,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
