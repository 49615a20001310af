"""What every section of a run file has in common: the base model and the number types with ML-Agents' conversions.

YAML 1.1 reads `1e-4` and `5e6` (no dot) as text, so numbers often arrive as text; ML-Agents converts them, and so do
the types here. What they refuse on top: `true` where a number belongs, fractions where a count belongs.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """One section of a run file: immutable, and an unknown key is an error.

    Words after the name of the base class are other defaults for keys that it has: `class Wide(Network, units=512)`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)

    def __init_subclass__(cls, **defaults: Any) -> None:
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(cls, **defaults: Any) -> None:
        for key, default in defaults.items():
            cls.model_fields[key].default, cls.model_fields[key].default_factory = default, None
        cls.model_rebuild(force=bool(defaults))

    def changed(self, **values: Any) -> Self:
        """A copy with other values; a map in the place of a section holds other values of that section."""
        for key, value in values.items():
            if isinstance(own := getattr(self, key), Section) and isinstance(value, dict):
                values[key] = own.changed(**value)
        return self.model_copy(update=values)


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("float_type", "expected a number")
    return value


def _whole(value: object) -> object:
    """Turn `5e6`, `5.0e6` and `'5e6'` into 5000000; leave everything else for pydantic to judge."""
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "expected a whole number")
    number = value
    if isinstance(value, str) and not value.isdecimal():  # digits alone are exact without the detour
        try:
            number = float(value)
        except ValueError:
            return value
    return int(number) if isinstance(number, float) and number.is_integer() else value


# The limit stands before the conversion, so that it shows in the JSON Schema; it still judges the converted value.
_WHOLE = BeforeValidator(_whole)
_NUMBER = BeforeValidator(_no_bool)
Int = Annotated[int, _WHOLE]
Count = Annotated[int, Field(gt=0), _WHOLE]
CountOrZero = Annotated[int, Field(ge=0), _WHOLE]
CountOrMinusOne = Annotated[int, Field(ge=-1), _WHOLE]
PortOrZero = Annotated[int, Field(ge=0, le=65535), _WHOLE]
Float = Annotated[float, _NUMBER]
Positive = Annotated[float, Field(gt=0), _NUMBER]
NotNegative = Annotated[float, Field(ge=0), _NUMBER]
Fraction = Annotated[float, Field(ge=0, le=1), _NUMBER]
Decay = Annotated[float, Field(ge=0, lt=1), _NUMBER]
