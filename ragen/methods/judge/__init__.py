"""A language model as judge: of turns (reward component 'judge'), and of answers (scoring 'judge' of `questions`).

    turns, template -> a prompt per turn -> Judge -> YES, NO -> rewards
    question, answer, template -> prompt -> ask -> verdict -> score

settings   the model, its prompt, the reward
template   prompts, in which untrusted text is a JSON string
asking     one question to the model, until its answer can be read
judging    many questions, each asked once in the life of a store
component  prompts from turns, rewards from answers
scoring    prompt from a question and its answer, score from the verdict
"""
