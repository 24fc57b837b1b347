"""Questions with one short answer, and further tries at half the pay. questions: a user's, or sums in words."""
