"""Template tags and filters of the portal: `{% load evenshare %}`."""
