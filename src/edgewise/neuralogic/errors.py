"""What is wrong with a template, a dataset or a setting of PyNeuraLogic's interface."""

from __future__ import annotations

from edgewise.errors import EdgewiseError


class BadTemplate(EdgewiseError):
    """A relation, rule or template in PyNeuraLogic's form that has no meaning there."""

    code = "bad-template"
    example = "from edgewise.neuralogic import R, V\nR.h(V.X)(1)"
    instead = "from edgewise.neuralogic import R, V\nR.h(V.X)"


class BadSample(EdgewiseError):
    """Samples, examples and queries of a dataset do not go together, or with their template."""

    code = "bad-sample"
    example = "from edgewise.neuralogic import Dataset, Model\nModel().build().build_dataset([])"
    instead = (
        "from edgewise.neuralogic import Dataset, Model\nModel().build().build_dataset(Dataset([]))"
    )


class BadSetting(EdgewiseError):
    """A setting, loss, optimiser or initializer with a value that it does not take."""

    code = "bad-setting"
    example = "from edgewise.neuralogic import Settings\nSettings(optimizer='adam')"
    instead = "from edgewise.neuralogic import Settings, nn\nSettings(optimizer=nn.Adam())"


class NotThere(EdgewiseError):
    """A name of PyNeuraLogic that has no meaning without its virtual machine."""

    code = "not-there"
    example = "from edgewise.neuralogic import set_jvm_path"
    instead = "from edgewise.neuralogic import R, V"
