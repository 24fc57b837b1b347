"""Questions of the user's own, from files or a data set.

environment     one question per episode, answered in one or several tries
question        a row of a file -> a question, with the columns that the settings name
picture         the picture of a row, decoded and fitted into a square
scoring         the score of an answer: number, text, choice, pattern; what a judge or a function gives
guess           settings for a file, from the names of its columns
demonstrations  a mediocre player, for the embedded policy to imitate
"""
