"""Questions with one short answer; each retry halves the reward. questions: user files, or word problems."""
