import pytest

from assay.names import readable


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("plain_1", "plain_1"),
        (r"$\alpha$", "α"),
        (r"$\Omega_m$", "Ωₘ"),
        (r"rate $\lambda^{2}$ / s", "rate λ² / s"),
        (r"$x_{\mathrm{obs}}$", "x_obs"),
        (r"$\sigma_{8,z}$", "σ_8,z"),
        (r"$\dot{M}_{\mathrm{wind}} / (M_\odot\,\mathrm{yr}^{-1})$", "Ṁ_wind / (M_⊙ yr⁻¹)"),
        (r"$\Omega_{\mathrm{m}}$, $\alpha_{\mathrm{a} \to b}$", "Ωₘ, α_a → b"),
        (r"$\hat{\theta}_1$ and $\langle v^2 \rangle$", "θ̂₁ and ⟨ v² ⟩"),
        (r"$\tau_{\mathrm{reionisation}}$", "τ_reionisation"),
        ("a $ of b", "a $ of b"),
        ("$$", "$$"),
    ],
)
def test_tex_is_read_as_people_do(name, read):
    assert readable(name) == read
