"""Two rows of a match log as a palus wrote them whose entities were one file each, with their hashes."""

from __future__ import annotations

_ROW = (
    '{{"actions":null,"cause":"{cause}","duration_ticks":100,"env":{{"build_hash":"{zeros}","id":"SoccerTwos",'
    '"params":{{}},"version":"1"}},"events":[],"finished_ms":1700000000500,"id":"{id}","leg":1,"rated":true,'
    '"replay":null,"result":"{result}","round":null,"runner":{{"isolation":"none","platform":"test","runtimes":{{}},'
    '"version":"0","worker":"w1"}},"schema":2,"score":[{score},0],"season":1,"seed":{seed},"sides":['
    '{{"file":"SoccerTwos.onnx","mode":"stochastic","owner":"ann","repo":"ann/striker",'
    '"revision":"1ab8c526e65323bdf0b1492e4c3d3aac5a78e97e",'
    '"sha256":"1ab8c526e65323bdf0b1492e4c3d3aac5a78e97e24488968a119f591f5720f52"}},'
    '{{"file":"SoccerTwos.onnx","mode":"stochastic","owner":"bob","repo":"bob/keeper",'
    '"revision":"9f0b9030f2cbc98b34e13f8315b0317878f90ce2",'
    '"sha256":"9f0b9030f2cbc98b34e13f8315b0317878f90ce29a9ee1b25a7d0f2ce6c22dd2"}}],'
    '"started":"2024-01-01T00:00:00+00:00","state":null,"unit_id":"{unit}","wall_ms":1.0}}'
)
_ZEROS = "0" * 64
_IDS = ("859355ffa0082d0c", "d4aa1ea0e7d8a285"), ("c0d0ba95dbdfa166", "32a6ff689298f081")
TEXTS = (
    _ROW.format(cause="goal", zeros=_ZEROS, id=_IDS[0][0], result="win1", score=1, seed=0, unit=_IDS[1][0]),
    _ROW.format(cause="time_limit", zeros=_ZEROS, id=_IDS[0][1], result="draw", score=0, seed=1, unit=_IDS[1][1]),
)
HASHES = (
    "7c4da09b96d3c1733a8dd856e97cfda0777ab8dda637f701fec247edffdb31d7",
    "22fabf2c00d78620bfaee0255daa4022c7fbab09d4177beb280920b3e3831a8f",
)
