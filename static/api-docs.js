// Draws the API's description from /api/v1/schema; nothing is loaded from elsewhere.
(function () {
  "use strict";
  var place = document.getElementById("api-docs");
  if (!place || !window.SwaggerUIBundle) return;
  window.SwaggerUIBundle({
    url: place.dataset.schema,
    domNode: place,
    validatorUrl: null,
    deepLinking: false,
    docExpansion: "list",
    supportedSubmitMethods: [],
  });
})();
