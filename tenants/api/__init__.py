"""The API's common ground (who asks, cursors, problems), and the tokens that open it."""
