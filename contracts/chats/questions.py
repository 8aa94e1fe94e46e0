"""What a person is asked: questions with choices, and leave to do something."""

from attrs import frozen

from .shape import Shape


@frozen(kw_only=True)
class QuestionChoice(Shape):
    """A choice. Its label is what answers the question, so it is never cut."""

    label: str
    description: str


@frozen(kw_only=True)
class Question(Shape):
    """A question. Its answer is text: the label of a choice, several labels with `, ` between
    them where `multi_select`, or a person's own words."""

    id: str
    header: str
    question: str
    choices: tuple[QuestionChoice, ...]
    multi_select: bool


@frozen(kw_only=True)
class AllowAlways(Shape):
    """The rule that `allow-always` grants, as the agent proposed it, and nothing wider."""

    label: str
    description: str
