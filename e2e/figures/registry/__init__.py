"""Every figure the project promises: its target and the command that measures it."""

from e2e.figures.figure import Figure
from e2e.figures.registry import (
    admission,
    api_server_trouble,
    engine_surface,
    engine_under_fire,
    gateway_under_fire,
    isolation,
    kv_cache,
    kv_quantisation,
    main_path,
    operator_interrupted,
    ownership,
    packaging,
    purge,
    real_pods,
    scheduling,
)

FIGURES: tuple[Figure, ...] = (
    *main_path.FIGURES,
    *operator_interrupted.FIGURES,
    *api_server_trouble.FIGURES,
    *ownership.FIGURES,
    *purge.FIGURES,
    *engine_under_fire.FIGURES,
    *engine_surface.FIGURES,
    *kv_cache.FIGURES,
    *kv_quantisation.FIGURES,
    *isolation.FIGURES,
    *gateway_under_fire.FIGURES,
    *packaging.FIGURES,
    *real_pods.FIGURES,
    *scheduling.FIGURES,
    *admission.FIGURES,
)
