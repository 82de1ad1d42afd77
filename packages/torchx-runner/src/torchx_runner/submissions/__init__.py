"""The journal of this user's submissions, and the search for apps by short names."""
