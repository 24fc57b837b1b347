"""Episodes played by a program of the user's own, through an endpoint that records it (docs/programs.md).

settings       which program, which tasks, which reward, and the limits
environment    the environment as everything but the rollout sees it: tasks are its initial states
tasks          rows of a file, of a Python iterable or of a data set
process        one program: started, limited, ended with all that it started
fork_server    the process that forks wardens
warden         the processes that watch over programs, and call functions that are programs
reward         what an episode is worth

player         the loop: programs, their calls, the engine, rows of `turns`
trajectory     one trajectory: its calls and, in the end, its rows
endpoint       HTTP on loopback, a key per trajectory
chat           messages, calls and requests as values
requests       the body of a request, read within limits
served         how many requests were refused, which, and why
replies        answers as bytes
responses      the same for the protocol of `/v1/responses`
album          images of requests
conversations  token in, token out: which context a request continues
spelling       messages as token ids, by the chat template
tool_calls     calls of tools in the text of a response

recording      what a program says to a policy, without training
teacher        a function that answers in the place of the policy, to be imitated
relay          what it says to a server that takes messages alone, kept as text
"""
