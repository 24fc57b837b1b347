"""Reports: self-contained HTML pages.

data             `gather`: facts, curves, decisions, stages and sampled trajectories of a run, from a store
page             `render_report`: ReportData -> one HTML page that needs no network

audited          `audited`: findings of the audits
decisions        decisions of the filter on each group
trajectory       a trajectory in the form of the page
rollouts         those of a training rollout, by group
credit           true and estimated credit of their turns
evaluations      evaluated episodes
groups           rows of stored datasets by group
chat             what a program and the policy said to each other
tokens           token boundaries in a recorded text
images           pictures that prompts showed, each once
boards           pictures of each turn, by replaying the stored actions
levels           curves of a curriculum: shares and success of every level
embedding        selection of the trajectories embedded in the page, within a budget
curves           panels of raw and smoothed curves, with intervals
failures         kinds of failure in a rollout, counted, with examples
words            a run in sentences and facts
document         a page from templates, scripts, styles and data, under a content security policy
templates/       HTML, styles and scripts, one concept per file
"""
